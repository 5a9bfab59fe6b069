// Package exceptions keeps what operators have said of single subjects for a while: overrides, which put other
// limits in the place of a rule's, and bans. All instances that share a store share them.
//
//	             Put, Delete                         every second: has it changed?
//	operator --> a Book ----> one key on Redis <---- the Books of all instances ----> decide.Decider.Except
//
// They are one document with a version. A Book changes it by comparing and setting, so that no change of
// another one is lost, and applies it before it answers; the others read it again within a second. Ends are told
// by the clock of Redis and kept by each process's own, so it does not matter when clocks differ.
//
// While Redis does not answer, what was read last holds, each until its end, and nothing can be changed. A Redis
// that has lost its state has lost the exceptions too, and so have all instances within a second. Without Redis
// they are kept in the process and end with it.
package exceptions

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// Bounds.
const (
	// Most is how many exceptions there can be, of both kinds together.
	Most = 10_000
	// Longest is the longest life of one, and Shortest the shortest.
	Longest  = 30 * 24 * time.Hour
	Shortest = time.Second
	// maxText is the most bytes of all keys and values of one, and maxReason of its reason.
	maxText   = 4096
	maxReason = 200
	// maxDocument is the most bytes of all of them.
	maxDocument = 8 << 20
)

// Errors.
var (
	// ErrFull means that there are as many exceptions as there can be.
	ErrFull = fmt.Errorf("there are as many overrides and bans as can be, %d or %d MiB: delete some, or put a rule into the configuration", Most, maxDocument>>20)
	// ErrInvalid means that an exception is wrong in itself.
	ErrInvalid = errors.New("it cannot be kept")
)

// A Kind is what an exception is.
type Kind string

// The kinds.
const (
	Override Kind = "override"
	Ban      Kind = "ban"
)

// An Exception is what holds for one subject for a while.
type Exception struct {
	Kind    Kind
	Domain  string
	Entries []config.Entry
	// Limits are those of an override, as they were written.
	Limits []string
	// Since and Until are when it was made and when it ends.
	Since, Until time.Time
	// By is who made it, and Reason why; empty is not known.
	By, Reason string

	subject, id string // where they are known: both take time to make
}

// named returns the exception with its subject and ID made.
func (e Exception) named() Exception {
	e.subject = e.Subject()
	e.id = e.ID()
	return e
}

// ID names the exception among all: the same kind of one subject has the same.
func (e *Exception) ID() string {
	if e.id != "" {
		return e.id
	}
	sum := sha256.Sum256([]byte(string(e.Kind) + "\n" + e.Subject()))
	return hex.EncodeToString(sum[:8])
}

// Subject is the subject as results name it.
func (e *Exception) Subject() string {
	if e.subject != "" {
		return e.subject
	}
	return config.Key(e.Domain, e.Entries)
}

// decided returns the exception as a Decider takes it. The error is ErrInvalid or sash.ErrInvalidLimit.
func (e *Exception) decided() (decide.Exception, error) {
	out := decide.Exception{Domain: e.Domain, Entries: e.Entries, Until: e.Until}
	length := len(e.Domain)
	for _, entry := range e.Entries {
		length += len(entry.Key) + len(entry.Value)
	}
	switch {
	case length > maxText:
		return out, fmt.Errorf("%w: domain and entries have %d bytes, more than %d", ErrInvalid, length, maxText)
	case len(e.Reason) > maxReason || !utf8.ValidString(e.Reason):
		return out, fmt.Errorf("%w: the reason is a text of up to %d bytes", ErrInvalid, maxReason)
	case (e.Kind == Override) != (len(e.Limits) > 0):
		return out, fmt.Errorf("%w: an override has limits, and a ban has none", ErrInvalid)
	}
	for _, text := range e.Limits {
		l, err := sash.ParseLimit(text)
		if err != nil {
			return out, err
		}
		l.Name = text
		out.Limits = append(out.Limits, l)
	}
	return out, nil
}
