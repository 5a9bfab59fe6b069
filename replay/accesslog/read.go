package accesslog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Bounds of the input.
const (
	maxLine     = 1 << 20 // bytes; a longer line is broken
	shownBroken = 5
	shownText   = 200 // bytes of a broken line
)

// Options configure Read. The zero value detects the format.
type Options struct {
	// Format is the format of the lines. Zero detects it from the first lines.
	Format Format
	// Fields maps fields (see [Fields]) with unusual names to their JSON keys or columns.
	Fields map[string]string
}

// Stats says what was understood of a log, and counts what was read. Add sums several logs.
type Stats struct {
	// Format names what the lines were read as, for people, such as "combined". It is empty for an empty log. Several logs
	// that differ have a list.
	Format string
	// Wrapping names what stands around each line, for people, such as "containerd (CRI)". It is empty if nothing does.
	Wrapping string
	// Client says where the clients' addresses were taken from, for people, such as "the first field".
	Client string
	// Notes are sentences on choices between fields that a reader may see differently.
	Notes []string

	Lines    int64 // non-empty lines
	Records  int64
	NoClient int64 // records without a client's address
	Broken   int64
	First    []Broken // the first few of the broken lines
}

// Add adds another log.
func (s *Stats) Add(more Stats) {
	s.Format, s.Wrapping, s.Client = join(s.Format, more.Format), join(s.Wrapping, more.Wrapping), join(s.Client, more.Client)
	for _, note := range more.Notes {
		if !slices.Contains(s.Notes, note) {
			s.Notes = append(s.Notes, note)
		}
	}
	s.NoClient += more.NoClient
	s.Lines += more.Lines
	s.Records += more.Records
	s.Broken += more.Broken
	s.First = append(s.First, more.First[:min(len(more.First), shownBroken-len(s.First))]...)
}

// join adds a name to a list of names, once.
func join(list, name string) string {
	switch {
	case list == "":
		return name
	case name == "" || slices.Contains(strings.Split(list, ", "), name):
		return list
	}
	return list + ", " + name
}

// A Broken is a line that could not be parsed.
type Broken struct {
	File   string
	Line   int64
	Reason string
	Text   string // the start of the line
}

// Read reads a log, compressed with gzip, bzip2, xz or zstd or not at all, and calls each for every record in the order of the file. It reuses the
// record, but not the strings in it, for the next line. Errors begin with name. An error is from reading, from the
// options, from the context, or from each; a [*DamagedError] comes after the last whole line.
func Read(ctx context.Context, name string, from io.Reader, opts *Options, each func(*Record) error) (Stats, error) {
	stats := Stats{}
	if opts == nil {
		opts = &Options{}
	}
	names, err := newNaming(opts.Fields)
	if err != nil {
		return stats, err
	}
	buffered, err := decompress(from)
	if err != nil {
		return stats, fmt.Errorf("%s: %w", name, err)
	}
	format := opts.Format
	if format == Auto {
		start, _ := buffered.Peek(1 << 16)
		if len(bytes.TrimSpace(start)) > 0 {
			if format = detect(start, names); format == Auto {
				return stats, fmt.Errorf("%s: the first lines have no known format: set it to one of %s, and name the field of the time if it is unusual", name, formatList())
			}
		}
	}
	if format != Auto {
		stats.Format = format.String()
	}
	l := &lines{from: buffered}
	parse, err := parser(format, names, l)
	if err != nil {
		return stats, fmt.Errorf("%s: %w", name, err)
	}
	var record Record
	for {
		if l.number%1024 == 0 && ctx.Err() != nil {
			return stats, ctx.Err()
		}
		line, err := l.next()
		if errors.Is(err, io.EOF) {
			return stats, nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return stats, fmt.Errorf("%s: line %d: %w", name, l.number, err)
		}
		if len(line) == 0 {
			continue
		}
		stats.Lines++
		record = Record{}
		if err == nil {
			err = parse(line, &record)
		}
		if err != nil {
			stats.Broken++
			if len(stats.First) < shownBroken {
				text := bytes.ToValidUTF8(line[:min(len(line), shownText)], []byte("?"))
				stats.First = append(stats.First, Broken{name, l.number, err.Error(), string(text)})
			}
			continue
		}
		stats.Records++
		if record.RemoteAddress == "" {
			stats.NoClient++
		}
		if err := each(&record); err != nil {
			return stats, fmt.Errorf("%s:%d: %w", name, l.number, err)
		}
	}
}

func parser(format Format, names naming, l *lines) (func([]byte, *Record) error, error) {
	switch format {
	case JSON:
		return func(line []byte, r *Record) error { return parseJSON(line, names, r) }, nil
	case ALB:
		return func(line []byte, r *Record) error { return parseALB(string(line), r) }, nil
	case CSV:
		header, err := l.next()
		if err != nil {
			return nil, fmt.Errorf("the first line, which names the columns, cannot be read: %w", err)
		}
		t, err := newTable(string(header), names)
		if err != nil {
			return nil, err
		}
		return func(line []byte, r *Record) error { return t.parse(string(line), r) }, nil
	default:
		return func(line []byte, r *Record) error { return parseCombined(string(line), r) }, nil
	}
}

var errLong = fmt.Errorf("longer than %d bytes", maxLine)

// lines returns the lines of a log without their ends.
type lines struct {
	from   *bufio.Reader
	number int64
	long   []byte
}

// next returns a line, which is valid until the next call. The error errLong concerns that line only.
func (l *lines) next() ([]byte, error) {
	l.number++
	line, err := l.from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = l.from.ReadSlice('\n')
			l.long = append(l.long, line[:min(len(line), maxLine+2-min(len(l.long), maxLine+2))]...)
		}
		line = l.long
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the last line has no line end
	}
	line = bytes.TrimRight(line, "\r\n")
	if err == nil && len(line) > maxLine {
		err = errLong
	}
	return line, err
}
