package exceptions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/throttle"
)

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

	config *config.Config // guarded by mu: the one that said which values of held are secret
}

// New returns a book for a decider. It keeps the exceptions on Redis, or in this process if the client is nil. The prefix
// is that of the store; empty means its default. A nil log means slog.Default. New does no I/O: see Run.
func New(decider *decide.Decider, client *redisclient.Client, prefix string, log *slog.Logger) *Book {
	key := cmp.Or(prefix, redisstore.DefaultPrefix) + "exceptions"
	return &Book{decider: decider, keeper: &keeper{client: client, key: key}, failures: throttle.Log{To: log, Every: 10 * time.Second}}
}

// Run applies the changes of other instances until the context ends. It returns nil.
func (b *Book) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		b.Refresh(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Refresh checks for changes once. A service that calls it before it serves does not admit banned subjects in its first
// second.
func (b *Book) Refresh(ctx context.Context) {
	b.changing.Lock() // so that an older read is not applied after a change
	defer b.changing.Unlock()
	timed, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	version, err := b.keeper.version(timed)
	b.mu.Lock()
	same := err == nil && version == b.ver && !b.read.IsZero() && b.config == b.decider.Config()
	if same {
		b.read, b.failed = time.Now(), nil
		b.dropEnded()
	}
	b.mu.Unlock()
	if err == nil && !same {
		_, _, _, err = b.fetch(timed)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = err
	b.dropEnded()
	b.failures.Log(slog.LevelWarn, "overrides and bans cannot be read: those that were read last hold until they expire", "error", err)
}

// fetch reads the document and applies it. It returns the exceptions, the version, and how far this process's clock is
// ahead of the keeper's.
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

// Status returns when the keeper last answered, zero for never, and the error of the last read, or nil. After an error, the
// exceptions from before hold.
func (b *Book) Status() (read time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read, b.failed
}

// Effect returns nil for an exception that applies under the configuration in use, or why it has no effect.
func (b *Book) Effect(e Exception) error {
	checked, err := e.decided()
	if err != nil {
		return err
	}
	return b.decider.CheckException(checked)
}

const tries = 8 // of a change, if others change the document concurrently

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

// change reads the document, edits it and writes it. Nil from edit changes nothing. It retries if another instance was faster.
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
