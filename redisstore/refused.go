package redisstore

import (
	"errors"
	"strings"
)

// misconfigured are the beginnings of what Redis answers when it will not work for a client until somebody
// changes a setting, a permission or a key: nothing of the script has been written then.
var misconfigured = [...]string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "WRONGTYPE", "CROSSSLOT", "NOSCRIPT", "SASH",
	"ERR AUTH", "ERR Client sent AUTH", "ERR invalid password", "ERR unknown command", "ERR DB index", "ERR invalid DB index",
	"ERR The user executing the script can't", "ERR This instance has cluster support disabled",
}

// unable are the beginnings of what Redis answers when it cannot run the script now.
var unable = [...]string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "MISCONF", "NOREPLICAS",
	"ERR max number of clients reached",
}

// Misconfigured reports whether an error is the server's refusal to work for this client at all: wrong
// credentials, missing permissions, a key of another type, keys of several slots, commands that it does
// not have. It does not mend by itself, and the call was not charged. Clients wrap what a server said:
// every error of the chain is looked at.
func Misconfigured(err error) bool {
	var after *waitError
	if errors.As(err, &after) {
		return Misconfigured(after.err)
	}
	return said(err, misconfigured[:])
}

// Uncharged reports whether the server has said that it did not run the script, or refused its first
// write: the call was certainly not charged. Misconfigured errors are among them; an error that is not
// Uncharged may have been charged or not.
func Uncharged(err error) bool { return said(err, misconfigured[:]) || said(err, unable[:]) }

// said reports whether an error of the chain begins in one of these ways.
func said(err error, starts []string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		for _, start := range starts {
			if strings.HasPrefix(err.Error(), start) {
				return true
			}
		}
	}
	return false
}
