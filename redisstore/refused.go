package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/sash"
	"example.com/sash/driver"
)

// lasting are prefixes of the errors with which Redis rejects a client until a setting, a permission or a key is
// changed, without "ERR ", which clients may cut off.
var lasting = [...]string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "WRONGTYPE", "CROSSSLOT", "NOSCRIPT", "SASH",
	"AUTH", "Client sent AUTH", "invalid password", "unknown command", "DB index", "invalid DB index",
	"This instance has cluster support disabled",
}

// unable are prefixes of the errors with which Redis rejects a script for now. Within a script they can occur only at the first write.
var unable = [...]string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "MISCONF", "NOREPLICAS",
	"max number of clients reached",
}

// rejected returns an error of a script as driver.ErrRejected if the error is about the value of a key: the server works. An
// error that every call meets becomes a *sash.StoreError, even if the script had begun.
func rejected(err error) error {
	for _, text := range chain(err) {
		if said, running := inside(text); begins(said, foreign[:]) || running && stumbles(said) {
			return fmt.Errorf("%w: %w", driver.ErrRejected, err)
		}
	}
	if err != nil && Misconfigured(err) {
		return &sash.StoreError{Err: err}
	}
	return err
}

// foreign are prefixes of the errors about a key whose value is not one of this store.
var foreign = [...]string{"WRONGTYPE", "SASH", "value is not", "hash value is not"}

// stumbles reports whether a script failed in Lua on a value that it read. A call of a function that the server lacks is no such failure.
func stumbles(said string) bool {
	if rest, ok := strings.CutPrefix(said, "user_script:"); ok {
		said = strings.TrimLeft(rest, "0123456789: ")
	}
	switch {
	case strings.HasPrefix(said, "attempt to call "), strings.Contains(said, " global '"):
		return false
	}
	return strings.HasPrefix(said, "attempt to ") || strings.HasPrefix(said, "bad argument #")
}

// Misconfigured reports whether the server rejects this client until an operator changes something: wrong credentials, missing
// permissions, a key of another type, keys of several slots, unknown commands, and any other failure within a script. The call may have
// been charged (see [Uncharged]), for example if a permission is missing for the second write of a script, or for WAIT.
func Misconfigured(err error) bool {
	var after *waitError
	if errors.As(err, &after) {
		return Misconfigured(after.err)
	}
	lasts, _ := read(err)
	return lasts
}

// Uncharged reports whether the server did not run the script or rejected its first write, so that the call was certainly not charged.
// Otherwise the call may have been charged, even if the error is Misconfigured: check Uncharged before you repeat a call.
func Uncharged(err error) bool {
	_, refused := read(err)
	return refused
}

// apart reports whether a script did not run because its keys are not on one server: their slot moves, or they are in several slots.
func apart(err error) bool {
	return errors.Is(err, driver.ErrApart) || says(err, "TRYAGAIN")
}

func says(err error, start string) bool {
	return slices.ContainsFunc(chain(err), func(text string) bool { return strings.HasPrefix(text, start) })
}

// read classifies an error of a server. An error within a script may follow a write.
func read(err error) (lasts, uncharged bool) {
	within := false
	for _, text := range chain(err) {
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

// inside returns the error of a command without the text that the server adds within a script, and whether a script was running.
func inside(text string) (said string, running bool) {
	text = strings.TrimPrefix(text, "ERR ")
	const source = "@user_script:"
	// Redis 7: "<error> script: <hash>, on @user_script:<line>." Valkey 9 leaves out "<hash>, ".
	if i := strings.LastIndex(text, " script: "); i >= 0 && strings.Contains(text[i:], " on "+source) {
		return text[:i], true
	}
	// Redis 6.2: "Error running script (call to <hash>): @user_script:<line>: <error>", with the line once or twice,
	// and a dash before an error that kept the command from running.
	if strings.HasPrefix(text, "Error running script") {
		if i := strings.LastIndex(text, source); i >= 0 {
			text = strings.TrimLeft(text[i+len(source):], " 0123456789:-")
		}
		return text, true
	}
	return text, false
}

// chain returns the text of an error and of every error that it wraps.
func chain(err error) (texts []string) {
	if err == nil {
		return nil
	}
	texts = append([]string{err.Error()}, chain(errors.Unwrap(err))...)
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			texts = append(texts, chain(e)...)
		}
	}
	return texts
}

func begins(text string, starts []string) bool {
	return slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(text, start) })
}
