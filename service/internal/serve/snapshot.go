package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"example.com/sash/memstore"
)

// snapshotEvery is how often a snapshot is written, and so how much of what was charged a crash may forget. Pauses are
// longer where writing is slow: it takes a tenth of the time at most.
const snapshotEvery = 10 * time.Second

// A snapshot is the file that the store in memory is written to.
type snapshot struct {
	store *memstore.Store
	path  string
	log   *slog.Logger
}

// load restores the store from the file. A damaged file is kept under another name, and the store starts empty: limits
// that start anew do less harm than a service that does not start.
func (s *snapshot) load() error {
	file, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.save() // an unwritable path fails now
	}
	if err != nil {
		return fmt.Errorf("--snapshot: %w", err)
	}
	defer func() { _ = file.Close() }()
	err = s.store.Restore(file)
	switch {
	case errors.Is(err, memstore.ErrSnapshot):
		damaged := s.path + ".damaged"
		if moved := os.Rename(s.path, damaged); moved != nil {
			return fmt.Errorf("--snapshot: %w, and the file cannot be renamed: %w", err, moved)
		}
		s.log.Error("the snapshot is damaged: nothing is charged yet", "file", damaged, "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("--snapshot: %w", err)
	}
	s.log.Info("what was charged before is restored", "file", s.path, "subjects", s.store.Stats().Keys)
	return nil
}

// run writes snapshots until ctx ends.
func (s *snapshot) run(ctx context.Context) error {
	pause := snapshotEvery
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		began := time.Now()
		if err := s.save(); err != nil {
			s.log.Error("the snapshot was not written: a restart forgets what was charged since the last one", "error", err)
		}
		pause = max(snapshotEvery, 9*time.Since(began))
	}
}

// save writes a new file and replaces the old one with it.
func (s *snapshot) save() (err error) {
	file, err := os.OpenFile(s.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("--snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("--snapshot: %w", errors.Join(err, os.Remove(file.Name())))
		}
	}()
	err = s.store.Snapshot(file)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), s.path)
}
