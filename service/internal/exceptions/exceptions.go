// Package exceptions keeps temporary exceptions for single subjects: overrides, which replace the limits of a rule, and
// bans. All instances that share a store share them.
//
//	             Put, Delete                         every second: has it changed?
//	operator --> a Book ----> one key on Redis <---- the Books of all instances ----> decide.Decider.Except
//
// The exceptions are one document with a version. A Book changes it with compare-and-set, and applies the change before it returns. The other
// instances reload it within a second. Expiry times are by the clock of Redis, and each process converts them to its own.
//
// While Redis does not answer, the exceptions that were read last hold until they expire, and none can be changed. A Redis that
// loses its state loses the exceptions too. Without Redis they live in the process and end with it.
package exceptions

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"example.com/sash"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/throttle"
)

// Bounds.
const (
	// Most is the greatest number of exceptions, of both kinds together.
	Most = 10_000
	// Longest and Shortest bound the lifetime of an exception.
	Longest  = 30 * 24 * time.Hour
	Shortest = time.Second
	// maxText bounds the bytes of all keys and values of an exception, and maxReason the bytes of its reason.
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
	Kind    Kind           `json:"kind"`
	Domain  string         `json:"domain"`
	Entries []config.Entry `json:"entries"`
	// Limits are the limits of an override, as written.
	Limits []string `json:"limits,omitempty"`
	// Since and Until are when the exception was created and when it expires.
	Since time.Time `json:"-"`
	Until time.Time `json:"-"`
	// By is the author of the exception, and Reason the reason for it. They are empty if unknown.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// ID is the same for all exceptions of one kind and subject. Subject is the subject as results name it.
	ID      string `json:"-"`
	Subject string `json:"-"`
}

func (e Exception) named() Exception {
	e.Subject = config.Key(e.Domain, e.Entries)
	sum := sha256.Sum256([]byte(string(e.Kind) + "\n" + e.Subject))
	e.ID = hex.EncodeToString(sum[:8])
	return e
}

// decided converts the exception for the Decider. The error is ErrInvalid or sash.ErrInvalidLimit.
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

// A keeper stores the document in one key of Redis, or in this process if it has no client. Exceptions expire by its
// clock. It needs no permissions beyond those of the scripts that decide. A Book makes one call to it at a time.
type keeper struct {
	client *redisclient.Client // nil is none; it stays the caller's
	key    string
	doc    document // without a client
}

// A document is a version of versionLength characters followed by all exceptions as JSON. Empty means none.
type document string

const versionLength = 16

func (d document) version() string { return string(d[:min(len(d), versionLength)]) }

type record struct {
	Exception
	Since int64 `json:"since"` // milliseconds since the Unix epoch, by the keeper's clock
	Until int64 `json:"until"`
}

// parse returns the unexpired exceptions, with times by this process's clock, which is ahead of the keeper's by ahead.
func (d document) parse(now time.Time, ahead time.Duration) ([]Exception, error) {
	if d == "" {
		return nil, nil
	}
	if len(d) < versionLength {
		return nil, errors.New("the document of overrides and bans is truncated")
	}
	var records []record
	if err := json.Unmarshal([]byte(d[versionLength:]), &records); err != nil {
		return nil, fmt.Errorf("the document of overrides and bans was not written by an instance: %w", err)
	}
	var out []Exception
	for _, r := range records[:min(len(records), Most)] {
		e := r.Exception
		e.Since = time.UnixMilli(r.Since).Add(ahead)
		left := time.UnixMilli(r.Until).Add(ahead).Sub(now)
		if left <= 0 {
			continue
		}
		e.Until = now.Add(left) // by the monotonic clock, so that setting the wall clock does not affect expiry
		out = append(out, e.named())
	}
	return out, nil
}

// compose returns a document with a new version, and its lifetime. Times are by this process's clock.
func compose(all []Exception, now time.Time, ahead time.Duration) (document, time.Duration, error) {
	records := make([]record, len(all))
	var life time.Duration
	for i, e := range all {
		records[i] = record{e, e.Since.Add(-ahead).UnixMilli(), e.Until.Add(-ahead).UnixMilli()}
		life = max(life, e.Until.Sub(now))
	}
	text, err := json.Marshal(records)
	return document(rand.Text()[:versionLength] + string(text)), life, err
}

//go:embed replace.lua
var replaceText string

// get returns the document, or its beginning up to the byte at end. An empty document means none.
func (k *keeper) get(ctx context.Context, end int64) (document, error) {
	if k.client == nil {
		return k.doc, nil
	}
	reply, err := k.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Getrange().Key(k.key).Start(0).End(end).Build()
	})
	if err != nil {
		return "", err
	}
	text, err := reply.ToString()
	return document(text), err
}

func (k *keeper) read(ctx context.Context) (doc document, now time.Time, err error) {
	if now = time.Now(); k.client != nil {
		now, err = k.client.Time(ctx)
	}
	if err == nil {
		doc, err = k.get(ctx, -1)
	}
	return doc, now, err
}

// write stores doc for life, if the stored document still has the version instead. Otherwise it reports false.
func (k *keeper) write(ctx context.Context, instead string, doc document, life time.Duration) (bool, error) {
	if k.client == nil {
		k.doc = doc
		return true, nil
	}
	reply, err := k.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Eval().Script(replaceText).Numkeys(1).Key(k.key).Arg(instead, string(doc), strconv.FormatInt(max(1, life.Milliseconds()), 10)).Build()
	})
	if err != nil {
		return false, err
	}
	n, err := reply.AsInt64()
	return n == 1, err
}

const (
	every    = time.Second // between two checks of the version
	patience = time.Second // for each answer of Redis
)

// A Book holds the exceptions and applies them to a decider. It is safe for concurrent use.
type Book struct {
	decider  *decide.Decider
	keeper   *keeper
	failures throttle.Log
	changing sync.Mutex // held while this process reads or changes the document

	mu     sync.Mutex
	held   []Exception // guarded by mu: as read, ordered by subject and kind
	ver    string      // guarded by mu: the version of held
	read   time.Time   // guarded by mu: when the keeper last answered; zero means never
	failed error       // guarded by mu: the error of the last read, or nil

	config *config.Config // guarded by mu: the configuration that said which values of held are secret
}

// New returns a book for a decider. It keeps the exceptions on Redis, or in this process if the client is nil. The
// prefix is that of the store; empty means the default. A nil log means slog.Default. New does no I/O: see Run.
func New(decider *decide.Decider, client *redisclient.Client, prefix string, log *slog.Logger) *Book {
	key := cmp.Or(prefix, redisstore.DefaultPrefix) + "exceptions"
	return &Book{decider: decider, keeper: &keeper{client: client, key: key}, failures: throttle.Log{To: log, Every: 10 * time.Second}}
}

// Run applies the changes of other instances until the context ends. It returns nil.
func (b *Book) Run(ctx context.Context) error {
	throttle.Repeat(ctx, func() time.Duration {
		next := time.Now().Add(every)
		b.Refresh(ctx)
		return time.Until(next)
	})
	return nil
}

// Refresh checks for changes once. A service calls it before it serves, so that bans hold from the first answer on.
func (b *Book) Refresh(ctx context.Context) {
	b.changing.Lock() // so that an older read is not applied after a change
	defer b.changing.Unlock()
	timed, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	doc, err := b.keeper.get(timed, versionLength-1)
	b.mu.Lock()
	same := doc.version() == b.ver && !b.read.IsZero() && b.config == b.decider.Config()
	b.mu.Unlock()
	if err == nil && !same {
		_, _, _, err = b.fetch(timed)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropEnded()
	if err == nil {
		b.read, b.failed = time.Now(), nil
	} else if ctx.Err() == nil {
		b.failed = err
		b.failures.Log(slog.LevelWarn, "overrides and bans cannot be read: those that were read last hold until they expire", "error", err)
	}
}

// fetch reads and applies the document. It returns the exceptions, the version, and by how much this clock is ahead: see parse.
func (b *Book) fetch(ctx context.Context) (all []Exception, version string, ahead time.Duration, err error) {
	doc, at, err := b.keeper.read(ctx)
	now := time.Now()
	ahead = now.Sub(at)
	if err == nil {
		all, err = doc.parse(now, ahead)
	}
	if err != nil {
		return nil, "", 0, err
	}
	cfg := b.decider.Config()
	for i := range all {
		e := &all[i]
		if named, err := b.decider.Named(e.Domain, e.Entries); err == nil && !slices.Equal(named, e.Entries) { // from before its key was secret
			e.Entries = named
			*e = e.named()
		}
	}
	b.follow(all, doc.version(), now, cfg)
	return all, doc.version(), ahead, nil
}

// follow makes the exceptions current and applies them if they changed.
func (b *Book) follow(all []Exception, version string, now time.Time, cfg *config.Config) {
	slices.SortFunc(all, func(x, y Exception) int {
		return cmp.Or(cmp.Compare(x.Subject, y.Subject), cmp.Compare(x.Kind, y.Kind))
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	known := version == b.ver && len(all) == len(b.held) && cfg == b.config
	b.held, b.ver, b.read, b.failed, b.config = all, version, now, nil, cfg
	if !known {
		b.apply()
	}
}

// apply passes the exceptions to the decider. The caller holds mu.
func (b *Book) apply() {
	out := make([]decide.Exception, 0, len(b.held))
	for i := range b.held {
		if e, err := b.held[i].decided(); err == nil { // invalid ones were written by hand
			out = append(out, e)
		}
	}
	b.decider.Except(out)
}

// dropEnded drops expired exceptions. The caller holds mu.
func (b *Book) dropEnded() {
	before, now := len(b.held), time.Now()
	b.held = slices.DeleteFunc(slices.Clone(b.held), func(e Exception) bool { return !now.Before(e.Until) })
	if len(b.held) < before {
		b.apply()
	}
}

// List returns the current exceptions of a kind, ordered by subject.
func (b *Book) List(kind Kind) []Exception {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, out := time.Now(), []Exception{}
	for _, e := range b.held {
		if e.Kind == kind && now.Before(e.Until) {
			out = append(out, e)
		}
	}
	return out
}

// Status returns when the keeper last answered, or zero for never, and the error of the last read. After an error, earlier exceptions hold.
func (b *Book) Status() (read time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read, b.failed
}

// Effect returns nil if an exception applies under the configuration in use, or else the reason why it has no effect.
func (b *Book) Effect(e Exception) error {
	checked, err := e.decided()
	if err != nil {
		return err
	}
	return b.decider.CheckException(checked)
}

const tries = 8 // for a change, if others change the document concurrently

// Put adds an exception for life, which is at least Shortest and at most Longest. It replaces the one with the same ID
// and sets Since and Until. Errors are ErrInvalid, ErrFull, decide.ErrNoSecretKeys, those of decide.CheckException, and
// those of Redis. After an error of Redis it is unknown whether the exception holds.
func (b *Book) Put(ctx context.Context, e Exception, life time.Duration) (Exception, error) {
	if life < Shortest || life > Longest {
		return e, fmt.Errorf("%w: it would expire after %v, which must be at least %v and at most %v", ErrInvalid, life, Shortest, Longest)
	}
	var err error
	if e.Entries, err = b.decider.Named(e.Domain, e.Entries); err != nil {
		return e, err
	}
	if e.Kind == Ban {
		e.Entries = decide.Canonical(e.Entries) // so that two spellings of an address are one ban
	}
	if err = b.Effect(e); err != nil {
		return e, err
	}
	e = e.named()
	err = b.change(ctx, func(all []Exception) ([]Exception, error) {
		all = slices.DeleteFunc(all, func(old Exception) bool { return old.ID == e.ID })
		if len(all) >= Most {
			return nil, ErrFull
		}
		e.Since = time.Now()
		e.Until = e.Since.Add(life)
		return append(all, e), nil
	})
	return e, err
}

// Delete ends an exception and returns it. It reports false if there is none. Errors are those of Redis.
func (b *Book) Delete(ctx context.Context, kind Kind, id string) (gone Exception, found bool, err error) {
	err = b.change(ctx, func(all []Exception) ([]Exception, error) {
		at := slices.IndexFunc(all, func(e Exception) bool { return e.Kind == kind && e.ID == id })
		if found = at >= 0; !found {
			return nil, nil
		}
		gone = all[at]
		return slices.Delete(all, at, at+1), nil
	})
	return gone, found, err
}

// change reads the document, edits it and writes it. If edit returns nil, nothing changes. If another instance was faster, change retries.
func (b *Book) change(ctx context.Context, edit func([]Exception) ([]Exception, error)) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for range tries {
		cfg := b.decider.Config()
		all, version, ahead, err := b.fetch(ctx)
		if err != nil {
			return err
		}
		if all, err = edit(slices.Clone(all)); all == nil || err != nil {
			return err
		}
		now := time.Now()
		doc, life, err := compose(all, now, ahead)
		if err == nil && len(doc) > maxDocument {
			err = ErrFull
		}
		if err != nil {
			return err
		}
		written, err := b.keeper.write(ctx, version, doc, life)
		if err != nil {
			return err
		}
		if written {
			b.follow(all, doc.version(), now, cfg)
			return nil
		}
	}
	return errors.New("other instances keep changing overrides and bans: try again")
}
