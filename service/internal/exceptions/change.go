package exceptions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash/service/internal/decide"
)

const tries = 8 // of a change, if others change the document concurrently

// errUnchanged ends a change that changes nothing.
var errUnchanged = errors.New("unchanged")

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
	checked, err := e.decided()
	if err != nil {
		return e, err
	}
	if err := b.decider.CheckException(checked); err != nil {
		return e, err
	}
	e = e.named()
	err = b.change(ctx, func(all []Exception) ([]Exception, error) {
		all = slices.DeleteFunc(all, func(old Exception) bool { return old.ID() == e.id })
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
		at := slices.IndexFunc(all, func(e Exception) bool { return e.Kind == kind && e.ID() == id })
		if found = at >= 0; !found {
			return nil, errUnchanged
		}
		gone = all[at]
		return slices.Delete(all, at, at+1), nil
	})
	return gone, found, err
}

// change reads the document, edits it and writes it. It retries if another instance was faster.
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
		all, err = edit(slices.Clone(all))
		if errors.Is(err, errUnchanged) {
			return nil
		}
		if err != nil {
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
