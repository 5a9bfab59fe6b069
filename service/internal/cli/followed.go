//go:build !sashserver

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.com/sash/replay"
	"example.com/sash/replay/accesslog"
)

// A followed is a name, and the file that has it.
type followed struct {
	file *logFile
	open *os.File // nil until the name has a file
	size int64    // of what was read
	gone logFile  // counts of the name's earlier files
	// rotated reports that the name gets files from another one, as access.log.1 from access.log. What comes there later was
	// read already, so the name is done with its first file.
	rotated, done bool
	logPart
}

// A logPart is what was read of one file.
type logPart struct {
	requests []kept
	stats    accesslog.Stats
	missing  []replay.Missing
}

// markRotated finds the names to which others are rotated: those that continue another name, in whatever form.
func markRotated(names []*followed) {
	for _, one := range names {
		one.rotated = slices.ContainsFunc(names, func(other *followed) bool {
			return strings.HasPrefix(one.file.Name, other.file.Name+".") || strings.HasPrefix(one.file.Name, other.file.Name+"-")
		})
	}
}

// poll reads a file that has grown, and notices one that was cut or is another file now.
func (f *follower) poll(ctx context.Context, one *followed) error {
	if one.open != nil {
		info, err := one.open.Stat()
		if err != nil {
			return err
		}
		if info.Size() < one.size { // it was copied and truncated
			f.retire(one)
		}
		if now, err := os.Stat(one.file.Name); !one.done && (err != nil || !os.SameFile(info, now)) {
			if err := f.readAll(ctx, one); err != nil {
				return err
			}
			f.retire(one)
			_ = one.open.Close()
			one.open = nil
		}
	}
	if one.done {
		return nil
	}
	if one.open == nil {
		file, err := os.Open(one.file.Name)
		if errors.Is(err, os.ErrNotExist) {
			return nil // until the server makes it
		}
		if err != nil {
			return err
		}
		one.open = file
	}
	return f.readAll(ctx, one)
}

// retire keeps what was read of a file that is gone.
func (f *follower) retire(one *followed) {
	f.past = append(f.past, one.logPart)
	one.gone.Requests, one.gone.Broken = one.file.Requests, one.file.Broken
	one.logPart, one.size, one.done = logPart{}, 0, one.rotated
}

// readAll reads the whole lines of a file, if it has more than before.
func (f *follower) readAll(ctx context.Context, one *followed) error {
	end, err := lastLine(one.open, one.file.Name)
	if err != nil || end == one.size {
		return err
	}
	part, before := logPart{}, f.selector.Missing()
	part.stats, err = accesslog.Read(ctx, one.file.Name, io.NewSectionReader(one.open, 0, end), f.opts, func(r *accesslog.Record) error {
		k, err := f.choose(r)
		k.selection.Key, k.selection.Route = strings.Clone(k.selection.Key), strings.Clone(k.selection.Route)
		if k.address = k.selection.Key; k.address != r.RemoteAddress {
			k.address = strings.Clone(r.RemoteAddress)
		}
		if part.requests = append(part.requests, k); len(part.requests) > mostFollowed {
			return errMany
		}
		return err
	})
	var damaged *accesslog.DamagedError
	if err != nil && !errors.As(err, &damaged) && !errors.Is(err, errMany) {
		return err
	}
	part.missing = lessMissing(f.selector.Missing(), before)
	one.logPart, one.size = part, end
	one.file.Requests, one.file.Broken = one.gone.Requests+part.stats.Records, one.gone.Broken+part.stats.Broken
	return nil
}

var errMany = errors.New("too many")

// lastLine returns where the last whole line of a file ends. A packed file is whole.
func lastLine(file *os.File, name string) (int64, error) {
	info, err := file.Stat()
	if err != nil || slices.Contains(packedNames, filepath.Ext(name)) {
		return info.Size(), err
	}
	const step = 1 << 12
	block := make([]byte, step)
	for end := info.Size(); end > 0; end -= min(end, step) {
		from := max(0, end-step)
		n, err := file.ReadAt(block[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
	}
	return 0, nil
}

// lessMissing returns what more was missed than before.
func lessMissing(now, before []replay.Missing) (more []replay.Missing) {
	for _, m := range now {
		if i := slices.IndexFunc(before, func(old replay.Missing) bool { return old.Field == m.Field }); i >= 0 {
			m.Records -= before[i].Records
		}
		if m.Records > 0 {
			more = append(more, m)
		}
	}
	return more
}

// missingOf adds up what parts miss.
func missingOf(parts []logPart) (all []replay.Missing) {
	records := int64(0)
	for _, part := range parts {
		records += part.stats.Records
		for _, m := range part.missing {
			i := slices.IndexFunc(all, func(other replay.Missing) bool { return other.Field == m.Field })
			if i < 0 {
				i = len(all)
				all = append(all, replay.Missing{Field: m.Field})
			}
			all[i].Records += m.Records
		}
	}
	for i := range all {
		all[i].Of = records
	}
	return all
}

// withMissing is a chooser that reports what the parts miss, since it read some lines more than once.
type withMissing struct {
	chooser
	all []replay.Missing
}

// Missing implements chooser.
func (w withMissing) Missing() []replay.Missing { return w.all }
