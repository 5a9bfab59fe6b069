package redisstore

import (
	"errors"
	"strings"
)

// lasting are the beginnings of what Redis answers when it will not work for a client until somebody changes a
// setting, a permission or a key. They come without "ERR ", which clients may cut off.
var lasting = [...]string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "WRONGTYPE", "CROSSSLOT", "NOSCRIPT", "SASH",
	"AUTH", "Client sent AUTH", "invalid password", "unknown command", "DB index", "invalid DB index",
	"This instance has cluster support disabled",
}

// unable are the beginnings of what Redis answers when it cannot run the script now. Within a script it says so
// of the first write only.
var unable = [...]string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "MISCONF", "NOREPLICAS",
	"max number of clients reached",
}

// Misconfigured reports whether an error is the server's refusal to work for this client at all: wrong
// credentials, missing permissions, a key of another type, keys of several slots, commands that it does
// not have, anything else that fails within a script. It does not mend by itself: somebody should know. It does
// not say whether the call was charged, which [Uncharged] does: a permission can be missing for the second
// write of a script, and for WAIT after the script. Clients wrap what a server said: every error of the chain
// is looked at.
func Misconfigured(err error) bool {
	var after *waitError
	if errors.As(err, &after) {
		return Misconfigured(after.err)
	}
	lasts, _ := read(err)
	return lasts
}

// Uncharged reports whether the server has said that it did not run the script, or refused its first
// write: the call was certainly not charged. An error that is not Uncharged may have been charged or not,
// also when it is Misconfigured: who charges again what was not charged asks this first.
func Uncharged(err error) bool {
	_, refused := read(err)
	return refused
}

// read tells what an error of a server means. What it says of a script that was running may come after a write.
func read(err error) (lasts, uncharged bool) {
	within := false
	for text := range chain(err) {
		said, running := inside(text)
		switch {
		case begins(said, unable[:]):
			return false, true
		case begins(said, lasting[:]):
			return true, !running
		}
		within = within || running && !strings.Contains(said, "Script killed by user")
	}
	return within, false
}

// inside returns what a server said of a command, without what it adds when a script was running then.
func inside(text string) (said string, running bool) {
	text = strings.TrimPrefix(text, "ERR ")
	const source = "@user_script:"
	// Redis 7, Valkey: "<said> script: <hash>, on @user_script:<line>."
	if i := strings.LastIndex(text, " script: "); i >= 0 && strings.Contains(text[i:], ", on "+source) {
		return text[:i], true
	}
	// Redis 6.2: "Error running script (call to <hash>): @user_script:<line>: <said>", with the line once or
	// twice, and a dash before what the command did not come to.
	if strings.HasPrefix(text, "Error running script") {
		if i := strings.LastIndex(text, source); i >= 0 {
			text = strings.TrimLeft(text[i+len(source):], " 0123456789:-")
		}
		return text, true
	}
	return text, false
}

// chain yields the text of an error and of all that it wraps.
func chain(err error) func(yield func(string) bool) {
	return func(yield func(string) bool) { walk(err, yield) }
}

func walk(err error, yield func(string) bool) bool {
	if err == nil {
		return true
	}
	if !yield(err.Error()) {
		return false
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			if !walk(e, yield) {
				return false
			}
		}
		return true
	}
	return walk(errors.Unwrap(err), yield)
}

func begins(text string, starts []string) bool {
	for _, start := range starts {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}
