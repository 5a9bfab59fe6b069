package accesslog

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
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
	// LogFormat is the server's own description of its lines, instead of a Format: nginx's log_format or Apache's
	// LogFormat, as it is in the configuration or its text alone.
	LogFormat string
	// Trusted are the addresses of your proxies, as in httplimit.AddressOptions: the client is the first address that is
	// not trusted, from the peer through the forwarded addresses from the right.
	Trusted []netip.Prefix
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
	// Client says where the clients' addresses were taken from, for people, such as "X-Forwarded-For, the first one". It is
	// empty for the address of the peer.
	Client string
	// Proxies are the peers of requests with forwarded addresses, if they are few and those many, and none is trusted.
	Proxies []string
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
	for _, proxy := range more.Proxies {
		if !slices.Contains(s.Proxies, proxy) {
			s.Proxies = append(s.Proxies, proxy)
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

// Read reads a log, compressed with gzip, bzip2, xz or zstd or not at all, and calls each for every record in the order of
// the file. It reuses the record, but not the strings in it, for the next line. Errors begin with name. An error is from reading, from the
// options, from the context, or from each; a [*DamagedError] comes after the last whole line.
func Read(ctx context.Context, name string, from io.Reader, opts *Options, each func(*Record) error) (Stats, error) {
	stats := Stats{}
	opts = cmp.Or(opts, &Options{})
	names, err := newNaming(opts.Fields)
	if err != nil {
		return stats, err
	}
	buffered, err := decompress(ctx, from)
	if err != nil {
		return stats, fmt.Errorf("%s: %w", name, err)
	}
	reader, err := newReader(name, buffered, names, opts, &stats)
	if err != nil {
		return stats, err
	}
	err = reader.read(ctx, each)
	reader.clients.describe(&stats)
	return stats, err
}
