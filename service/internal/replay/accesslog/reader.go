package accesslog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// A reader reads one log.
type reader struct {
	name     string
	lines    *lines
	parser   parser
	wrappers []wrapper
	clients  *clients
	stats    *Stats
	record   Record // of the current line
}

// newReader finds out how a log is to be read.
func newReader(name string, from *bufio.Reader, names naming, opts *Options, stats *Stats) (*reader, error) {
	fail := func(err error) (*reader, error) { return nil, fmt.Errorf("%s: %w", name, err) }
	r := &reader{name: name, stats: stats}
	var err error
	if r.clients, err = newClients(opts.Trusted); err != nil {
		return fail(err)
	}
	d := detector{names: names, format: opts.Format}
	if opts.LogFormat != "" {
		if opts.Format != Auto {
			return fail(errors.New("a format and a log format exclude each other"))
		}
		if d.layout, err = compileFormat(opts.LogFormat); err != nil {
			return fail(err)
		}
	}
	start, _ := from.Peek(1 << 16)
	found, ok := d.detect(start, stats)
	switch {
	case ok:
	case d.layout != nil:
		found.parser = d.layout
	case opts.Format == CSV:
		return fail(errors.New("the first line, which names the columns, cannot be read: the log is empty"))
	case opts.Format == Auto && len(bytes.TrimSpace(start)) > 0:
		return nil, errUnknown(name)
	default:
		found.parser = newParser(opts.Format, names)
	}
	if stats.Format == "" && opts.Format != Auto {
		stats.Format = opts.Format.String()
	}
	r.parser = found.parser
	for _, w := range found.wrappings {
		r.wrappers = append(r.wrappers, w.new())
	}
	r.lines = &lines{from: from}
	return r, nil
}

// read reads all lines.
func (r *reader) read(ctx context.Context, each func(*Record) error) error {
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return fmt.Errorf("%s: line %d: %w", r.name, r.lines.number, err)
		}
		if len(line) == 0 {
			continue
		}
		if err := r.line(line, err, r.wrappers, each); err != nil {
			return err
		}
	}
}

// line reads one line. The error is fatal: it is from the callback, or from the line that names the columns.
func (r *reader) line(line []byte, err error, wrappers []wrapper, each func(*Record) error) error {
	inner := line
	for _, w := range wrappers {
		if err != nil {
			break
		}
		inner, err = w.unwrap(inner)
	}
	if err == nil && len(inner) == 0 {
		return nil
	}
	r.record = Record{}
	if err == nil {
		err = r.parser.parse(inner, &r.record)
	}
	if err != nil {
		return r.without(line, err)
	}
	r.stats.Lines++
	r.clients.find(&r.record)
	r.stats.Records++
	if r.record.RemoteAddress == "" {
		r.stats.NoClient++
	}
	if err := each(&r.record); err != nil {
		return fmt.Errorf("%s:%d: %w", r.name, r.lines.number, err)
	}
	return nil
}

// without counts a line without a record.
func (r *reader) without(line []byte, why error) error {
	if errors.Is(why, errNoRecord) {
		return nil
	}
	if header := (headerError{}); errors.As(why, &header) {
		return fmt.Errorf("%s: %w", r.name, why)
	}
	r.stats.Lines++
	r.broken(line, why)
	return nil
}

func (r *reader) broken(line []byte, why error) {
	r.stats.Broken++
	if len(r.stats.First) < shownBroken {
		text := bytes.ToValidUTF8(line[:min(len(line), shownText)], []byte("?"))
		r.stats.First = append(r.stats.First, Broken{r.name, r.lines.number, why.Error(), string(text)})
	}
}
