// Package exceptions keeps temporary exceptions for single subjects: overrides, which replace the limits of a rule, and
// bans. All instances that share a store share them.
//
//	             Put, Delete                         every second: has it changed?
//	operator --> a Book ----> one key on Redis <---- the Books of all instances ----> decide.Decider.Except
//
// They are one document with a version. A Book changes it with compare-and-set, so that no concurrent change is lost,
// and applies the change before it returns. The other instances reload the document within a second. Expiry times are
// by the clock of Redis, and each process converts them to its own, so the clocks may differ.
//
// While Redis does not answer, the exceptions that were read last hold until they expire, and none can be changed. A
// Redis that loses its state loses the exceptions too, and all instances drop them within a second. Without Redis they
// live in the process and end with it.
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
	// Most is the greatest number of exceptions, of both kinds together.
	Most = 10_000
	// Longest and Shortest bound the lifetime of an exception.
	Longest  = 30 * 24 * time.Hour
	Shortest = time.Second
	// maxText bounds the bytes of all keys and values of one, and maxReason those of its reason.
	maxText   = 4096
	maxReason = 200
	// maxDocument bounds the bytes of all exceptions.
	maxDocument = 8 << 20
)

// Errors.
var (
	// ErrFull means that there is no room for another exception.
	ErrFull = fmt.Errorf("no room for more overrides and bans (at most %d, and %d MiB): delete some, or add a rule to the configuration", Most, maxDocument>>20)
	// ErrInvalid means that an exception is invalid.
	ErrInvalid = errors.New("invalid exception")
)

// A Kind is a kind of exception.
type Kind string

// The kinds.
const (
	Override Kind = "override"
	Ban      Kind = "ban"
)

// An Exception is a temporary override or ban of one subject.
type Exception struct {
	Kind    Kind
	Domain  string
	Entries []config.Entry
	// Limits are the limits of an override, as written.
	Limits []string
	// Since and Until are when the exception was created and when it expires.
	Since, Until time.Time
	// By is its author, and Reason its reason; empty if unknown.
	By, Reason string

	subject, id string // cached: both are expensive to compute
}

// named returns the exception with its subject and ID cached.
func (e Exception) named() Exception {
	e.subject = e.Subject()
	e.id = e.ID()
	return e
}

// ID identifies the exception. Exceptions of one kind and subject have the same ID.
func (e *Exception) ID() string {
	if e.id != "" {
		return e.id
	}
	sum := sha256.Sum256([]byte(string(e.Kind) + "\n" + e.Subject()))
	return hex.EncodeToString(sum[:8])
}

// Subject returns the subject as results name it.
func (e *Exception) Subject() string {
	if e.subject != "" {
		return e.subject
	}
	return config.Key(e.Domain, e.Entries)
}

// decided returns the exception in the Decider's form. The error is ErrInvalid or sash.ErrInvalidLimit.
func (e *Exception) decided() (decide.Exception, error) {
	out := decide.Exception{Domain: e.Domain, Entries: e.Entries, Until: e.Until}
	length := len(e.Domain)
	for _, entry := range e.Entries {
		length += len(entry.Key) + len(entry.Value)
	}
	switch {
	case length > maxText:
		return out, fmt.Errorf("%w: domain and entries have %d bytes, the maximum is %d", ErrInvalid, length, maxText)
	case len(e.Reason) > maxReason || !utf8.ValidString(e.Reason):
		return out, fmt.Errorf("%w: the reason must be UTF-8 of at most %d bytes", ErrInvalid, maxReason)
	case (e.Kind == Override) != (len(e.Limits) > 0):
		return out, fmt.Errorf("%w: an override needs limits, and a ban must not have any", ErrInvalid)
	}
	if n := decide.Networks(e.Entries); e.Kind == Ban && n > 1 {
		return out, fmt.Errorf("%w: a ban has one network and any number of addresses, this one has %d networks: ban one of them, or each address", ErrInvalid, n)
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
