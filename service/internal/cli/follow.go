//go:build !sashserver

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	address   string
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
	past  []logPart // of files that are gone
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
	markRotated(f.names)
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
	for _, one := range f.names {
		if err := f.poll(ctx, one); err != nil {
			return nil, err
		}
	}
	parts, requests := f.parts(), 0
	for _, part := range parts {
		requests += len(part.requests)
	}
	if requests > mostFollowed {
		return nil, fmt.Errorf("--follow is for logs of up to %d requests, and these have more: follow only the newest file, or read them without --follow", mostFollowed)
	}
	r := &logReading{logs: f.logs, opts: f.opts, selector: withMissing{f.selector, missingOf(parts)}, files: f.files}
	var err error
	if r.builder, err = f.logs.builder(); err != nil {
		return nil, err
	}
	for _, part := range parts {
		r.stats.Add(part.stats)
		r.survey.NextFile()
		for i := range part.requests {
			k := &part.requests[i]
			r.survey.Add(&accesslog.Record{Time: k.at, RemoteAddress: k.address})
			k.into(r.builder)
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

// parts returns what was read, in the order in which it was begun.
func (f *follower) parts() []logPart {
	all := slices.Clone(f.past)
	for _, one := range f.names {
		all = append(all, one.logPart)
	}
	return all
}

func (f *follower) close() {
	for _, one := range f.names {
		if one.open != nil {
			_ = one.open.Close()
		}
	}
}
