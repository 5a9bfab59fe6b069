//go:build !sashserver

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/sash/replay"
	"example.com/sash/replay/accesslog"
)

// mostFollowed bounds the requests of logs that are followed. They are in memory, and each answer is made from all of them.
const mostFollowed = 1_000_000

// A kept is one request of a log that is followed.
type kept struct {
	at        int64
	selection replay.Selection
	counts    bool
	throttled bool
}

func (k *kept) into(b *replay.Builder) {
	switch {
	case !k.counts:
		b.Skip()
		return
	case k.throttled:
		b.Throttled()
	}
	b.Add(k.at, k.selection)
}

// A follower reads logs that are being written. It follows names, as tail -F does: after a rotation it keeps what it has read
// and reads the new file. An answer is made from the beginning every time, which suits every format.
type follower struct {
	*logReading
	names []*followed
	past  logPart // of files that are gone
}

type followed struct {
	file *logFile
	open *os.File // nil until the name has a file
	size int64    // of what was read
	logPart
}

type logPart struct {
	requests []kept
	stats    accesslog.Stats
	survey   replay.Survey
}

// An answer is what a command says of a log.
type answer struct {
	report any
	log    *logReport
	text   func(*text)
	line   string // in one line
	ended  func() error
}

// A study makes an answer from a log.
type study func(ctx context.Context, a *app, trace *replay.Trace, log logReport) (*answer, error)

// run answers once, or again and again while logs are written.
func (l *logs) run(cmd *cobra.Command, a *app, args []string, study study) error {
	if l.follow {
		return l.following(cmd, a, args, study)
	}
	trace, log, err := l.read(cmd, a, args)
	if err != nil {
		return err
	}
	defer trace.Close()
	said, err := study(log.studying(cmd.Context()), a, trace, log)
	if err != nil {
		return err
	}
	if err := a.print(l.json, said.report, said.text); err != nil {
		return err
	}
	return said.ended()
}

func (l *logs) following(cmd *cobra.Command, a *app, args []string, study study) error {
	if len(args) == 0 || slices.Contains(args, stdin) {
		return errors.New("--follow reads files: name one or more")
	}
	if l.interval <= 0 {
		return errors.New("--interval must be above zero")
	}
	r, err := l.newReading(cmd, args)
	if err != nil {
		return err
	}
	f := &follower{logReading: r}
	defer f.close()
	for _, file := range r.files {
		if info, err := os.Stat(file.Name); err == nil && !info.Mode().IsRegular() && file.Skipped == "" {
			return fmt.Errorf("--follow reads regular files, and %s is none: leave out --follow to read it to its end", file.Name)
		}
		if file.Skipped == "" {
			f.names = append(f.names, &followed{file: file})
		}
	}
	ctx, quiet := cmd.Context(), &app{out: a.out, err: io.Discard, env: a.env}
	for ctx.Err() == nil {
		began := time.Now()
		said, err := f.answer(ctx, quiet, study)
		switch {
		case ctx.Err() != nil: // the last answer follows
		case err != nil:
			return err
		case said != nil:
			if err := l.show(a, said); err != nil {
				return err
			}
		}
		// At most half of the time is spent on answers.
		select {
		case <-ctx.Done():
		case <-time.After(max(l.interval, time.Since(began))):
		}
	}
	said, err := f.answer(context.WithoutCancel(ctx), quiet, study)
	if err != nil {
		return err
	}
	if said == nil {
		return errors.New("interrupted before a request was read")
	}
	if file, ok := a.out.(*os.File); ok && isTerminal(file) && !l.json {
		fmt.Fprint(a.out, clearScreen)
	}
	if err := a.print(l.json, said.report, said.text); err != nil {
		return err
	}
	return said.ended()
}

const clearScreen = "\x1b[H\x1b[J"

// show writes an answer that another one follows: on a terminal over the one before, elsewhere in a line.
func (l *logs) show(a *app, said *answer) error {
	if l.json {
		return a.print(true, said.report, nil)
	}
	file, ok := a.out.(*os.File)
	if !ok || !isTerminal(file) {
		_, err := fmt.Fprintf(a.out, "%s: %s; %s\n", said.log.Last, count(said.log.Requests, "request"), said.line)
		return err
	}
	var page bytes.Buffer
	said.text(&text{to: &page, width: a.width()})
	lines := strings.SplitAfter(page.String(), "\n")
	if _, height, err := term.GetSize(int(file.Fd())); err == nil && len(lines) > height-1 && height > 2 {
		lines = append(lines[:height-2], "… more when you interrupt\n")
	}
	_, err := io.WriteString(a.out, clearScreen+strings.Join(lines, ""))
	return err
}

// answer reads what is new and makes an answer. It returns none as long as there is no request.
func (f *follower) answer(ctx context.Context, a *app, study study) (*answer, error) {
	requests := len(f.past.requests)
	for _, one := range f.names {
		if err := f.poll(ctx, one); err != nil {
			return nil, err
		}
		if requests += len(one.requests); requests > mostFollowed {
			return nil, fmt.Errorf("--follow is for logs of up to %d requests, and these have more: follow only the newest file, or read them without --follow", mostFollowed)
		}
	}
	r := &logReading{logs: f.logs, opts: f.opts, selector: f.selector, files: f.files}
	var err error
	if r.builder, err = f.logs.builder(); err != nil {
		return nil, err
	}
	for _, part := range append([]*logPart{&f.past}, f.parts()...) {
		r.stats.Add(part.stats)
		r.survey = part.survey
		for i := range part.requests {
			part.requests[i].into(r.builder)
		}
	}
	trace := r.builder.Trace()
	defer trace.Close()
	log := r.report(trace)
	if log.Requests == 0 {
		return nil, nil
	}
	return study(ctx, a, trace, log)
}

func (f *follower) parts() (all []*logPart) {
	for _, one := range f.names {
		all = append(all, &one.logPart)
	}
	return all
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
		if now, err := os.Stat(one.file.Name); err != nil || !os.SameFile(info, now) {
			if err := f.readAll(ctx, one); err != nil {
				return err
			}
			f.retire(one)
			_ = one.open.Close()
			one.open = nil
		}
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
	f.past.requests = append(f.past.requests, one.requests...)
	f.past.stats.Add(one.stats)
	one.logPart, one.size = logPart{}, 0
}

// readAll reads the whole lines of a file, if it has more than before.
func (f *follower) readAll(ctx context.Context, one *followed) error {
	end, err := lastLine(one.open, one.file.Name)
	if err != nil || end == one.size {
		return err
	}
	part := logPart{}
	part.stats, err = accesslog.Read(ctx, one.file.Name, io.NewSectionReader(one.open, 0, end), f.opts, func(r *accesslog.Record) error {
		part.survey.Add(r)
		k, err := f.choose(r)
		k.selection.Key, k.selection.Route = strings.Clone(k.selection.Key), strings.Clone(k.selection.Route)
		if part.requests = append(part.requests, k); len(part.requests) > mostFollowed {
			return errMany
		}
		return err
	})
	var damaged *accesslog.DamagedError
	if err != nil && !errors.As(err, &damaged) && !errors.Is(err, errMany) {
		return err
	}
	one.logPart, one.size = part, end
	one.file.Requests, one.file.Broken = part.stats.Records, part.stats.Broken
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

func (f *follower) close() {
	for _, one := range f.names {
		if one.open != nil {
			_ = one.open.Close()
		}
	}
}
