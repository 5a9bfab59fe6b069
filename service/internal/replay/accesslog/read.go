// Package accesslog reads the access logs of web servers, proxies and load balancers.
//
// [Read] detects the format from the first lines, unless [Options.Format] gives the server's own format string:
// nginx's log_format or Apache's LogFormat. It also removes what other programs wrote around the lines:
// container runtimes, Docker's JSON driver, syslog, journalctl and compose.
//
// Read counts and skips lines that it cannot parse. [Stats] describes the detected format and counts the lines.
package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	maxLine     = 1 << 20 // bytes; a longer line is broken
	shownBroken = 5
	shownText   = 200 // bytes of a broken line
)

// Options configure Read. The zero value detects the format.
type Options struct {
	// Format is the name of the format of the lines, one of [FormatNames], or the server's own description of them: nginx's
	// log_format or Apache's LogFormat, as it is in the configuration or its text alone. Empty detects the format.
	Format string
	// Trusted are the addresses of your proxies, as in httplimit.AddressOptions: the client is the first address that is
	// not trusted, from the peer through the forwarded addresses from the right.
	Trusted []netip.Prefix
	// Fields maps fields (see [Fields]) with unusual names to their JSON keys or columns.
	Fields map[string]string
}

// Stats describes how a log was read, and counts its lines. Add sums several logs.
type Stats struct {
	// Format names the detected format for people, such as "combined". It is empty for an empty log, and a list
	// if several logs differ.
	Format string
	// Wrapping names what other programs wrote around each line, such as "containerd (CRI)". It is empty without a wrapping.
	Wrapping string
	// Client names the source of client addresses, such as "X-Forwarded-For, the first one". Empty means the peer.
	Client string
	// Notes are sentences on choices between fields that a reader may want to check.
	Notes []string

	Lines    int64 // non-empty lines
	Records  int64
	Messages int64 // messages of the server that are not requests
	Broken   int64
	First    []Broken // the first broken lines

	// Ends counts the records that have only the time of their end. Times says how start times were found, such
	// as "msec less request_time".
	Ends  int64
	Times string
	// Peers counts records by peer, for each peer that forwarded for another client and is not trusted.
	Peers map[string]int64
}

// Add adds the statistics of another log.
func (s *Stats) Add(more Stats) {
	s.Format, s.Wrapping, s.Client = join(s.Format, more.Format), join(s.Wrapping, more.Wrapping), join(s.Client, more.Client)
	for _, note := range more.Notes {
		if !slices.Contains(s.Notes, note) {
			s.Notes = append(s.Notes, note)
		}
	}
	s.Lines += more.Lines
	s.Records += more.Records
	s.Messages += more.Messages
	s.Broken += more.Broken
	s.Ends += more.Ends
	s.Times = join(s.Times, more.Times)
	if s.Peers == nil {
		s.Peers = make(map[string]int64)
	}
	for peer, n := range more.Peers {
		s.Peers[peer] += n
	}
	s.First = append(s.First, more.First[:min(len(more.First), shownBroken-len(s.First))]...)
}

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
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text,omitempty"` // the start of the line
}

// Read reads a log, plain or compressed with gzip or zstd, and calls each for every record in the order of the file.
// It reuses the record for the next line, but not its strings. Errors come from reading, from the options or from
// each, and begin with name. After a [*DamagedError], each has received every whole line before the damage.
func Read(name string, from io.Reader, opts Options, each func(*Record) error) (stats Stats, err error) {
	r, err := newReader(name, from, opts, &stats)
	if err != nil {
		return stats, err
	}
	err = r.read(each)
	r.clients.describe(&stats)
	return stats, err
}

type reader struct {
	name      string
	lines     *lines
	parser    parser
	wrappings []*wrapping
	clients   *clients
	stats     *Stats
	record    Record // of the current line
	others    detector
	from      string // how the last start time was found
}

func newReader(name string, from io.Reader, opts Options, stats *Stats) (*reader, error) {
	d := detector{formats: formats}
	r := &reader{name: name, stats: stats}
	var err error
	if d.names, err = newNaming(opts.Fields); err != nil {
		return nil, err
	}
	if r.clients, err = newClients(opts.Trusted); err != nil {
		return nil, err
	}
	if i := slices.Index(FormatNames(), opts.Format); i >= 0 {
		d.formats = formats[i : i+1]
	} else if opts.Format != "" {
		l, err := compileFormat(opts.Format)
		if err != nil {
			return nil, err
		}
		d.formats = []format{{name: l.name, layouts: []*layout{l}}}
	}
	r.others = detector{formats: formats, names: d.names}
	r.others.prepare()
	unpacked, err := decompress(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.lines = newLines(unpacked)
	start, _ := unpacked.Peek(readAhead)
	found := d.detect(start)
	switch {
	case found != nil:
		r.parser, r.wrappings, stats.Format, stats.Wrapping = found.parser(d.names), found.wrappings, found.about, found.wrapping()
	case opts.Format == "" && len(bytes.TrimSpace(start)) > 0:
		return nil, d.errUnknown(name, start)
	default:
		r.parser = d.parsers[0]
	}
	return r, nil
}

func (r *reader) read(each func(*Record) error) error {
	for {
		line, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return fmt.Errorf("%s: line %d: %w", r.name, r.lines.number, err)
		}
		if err == nil && len(line) > 0 {
			err = r.line(line)
		}
		var header headerError
		switch {
		case len(line) == 0 || errors.Is(err, errNoRecord):
			continue
		case errors.As(err, &header):
			return fmt.Errorf("%s: %w", r.name, err)
		}
		r.stats.Lines++
		switch {
		case errors.Is(err, errMessage):
			r.stats.Messages++
			continue
		case err != nil:
			r.broken(line, err)
			continue
		}
		r.stats.Records++
		if r.record.Ended {
			r.stats.Ends++
		} else if r.record.from != r.from && r.record.from != "" {
			r.from = r.record.from
			r.stats.Times = join(r.stats.Times, r.from)
		}
		r.clients.find(&r.record)
		if err := each(&r.record); err != nil {
			return fmt.Errorf("%s:%d: %w", r.name, r.lines.number, err)
		}
	}
}

// nginxError matches the start of a line in nginx's error log, which containers mix with the requests.
var nginxError = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[[a-z]+\] `)

var (
	errWrapping = errors.New("not wrapped as the other lines are")
	errMessage  = errors.New("a message of the server")
)

func (r *reader) line(line []byte) error {
	r.record = Record{}
	if len(r.wrappings) > 0 {
		r.record.around = string(line)
	}
	for _, w := range r.wrappings {
		var ok bool
		if line, ok = w.unwrap(line); !ok {
			return errWrapping
		}
	}
	if len(line) == 0 {
		return errNoRecord
	}
	err := r.parser.parse(line, &r.record)
	if errors.Is(err, errNotRequest) && cmp.Or(r.record.Field("msg"), r.record.Field("message")) != "" || err != nil && nginxError.Match(line) {
		return errMessage
	}
	return err
}

func (r *reader) broken(line []byte, why error) {
	r.stats.Broken++
	if len(r.stats.First) < shownBroken {
		if other, ok := r.others.recognize(line, false); ok && !strings.HasPrefix(r.stats.Format, other.format.name) {
			why = fmt.Errorf("%w; it is %s", why, other.about)
		}
		text := bytes.ToValidUTF8(line[:min(len(line), shownText)], []byte("?"))
		r.stats.First = append(r.stats.First, Broken{r.name, r.lines.number, why.Error(), string(text)})
	}
}

var errLong = fmt.Errorf("longer than %d bytes", maxLine)

type lines struct {
	from   *bufio.Reader
	end    byte // the line end: "\n", or "\r" if the log begins without any "\n"
	number int64
	long   []byte
}

func newLines(from *bufio.Reader) *lines {
	l := &lines{from: from, end: '\n'}
	if start, _ := from.Peek(readAhead); bytes.IndexByte(start, '\n') < 0 && bytes.IndexByte(start, '\r') >= 0 {
		l.end = '\r'
	}
	return l
}

// next returns a line, which is valid until the next call. After errLong, reading continues with the next line.
func (l *lines) next() ([]byte, error) {
	l.number++
	line, err := l.from.ReadSlice(l.end)
	// A file that was truncated under its writer begins with NULs, and a file after a crash ends with them.
	if line = bytes.TrimLeft(line, "\x00"); errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = l.from.ReadSlice(l.end)
			if len(l.long) == 0 {
				line = bytes.TrimLeft(line, "\x00")
			}
			l.long = append(l.long, line[:min(len(line), maxLine+2-min(len(l.long), maxLine+2))]...)
		}
		line = l.long
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the last line has no line end
	}
	line = bytes.Trim(line, "\r\n\x00")
	if err == nil && len(line) > maxLine {
		err = errLong
	}
	return line, err
}

const (
	readAhead     = 1 << 16  // bytes
	byteOrderMark = "\ufeff" // editors and exports on Windows begin text with it
	// zstdWindow bounds the memory of a zstd decoder. It is the window of zstd --long=27, the largest that zstd accepts by default.
	zstdWindow = 128 << 20
)

// A DamagedError reports that compressed data is truncated or corrupt. Everything before the damage was read.
type DamagedError struct {
	// Compression names the compression, such as "gzip".
	Compression string
	// Err is the error of the decoder.
	Err error
}

// Error implements error.
func (e *DamagedError) Error() string {
	if errors.Is(e.Err, io.ErrUnexpectedEOF) || errors.Is(e.Err, io.EOF) {
		return fmt.Sprintf("the %s data is cut off", e.Compression)
	}
	return fmt.Sprintf("the %s data is corrupt or cut off (%v)", e.Compression, e.Err)
}

var compressions = []struct {
	name, magic string
	open        func(io.Reader) (io.Reader, error)
}{
	{"gzip", "\x1f\x8b", func(from io.Reader) (io.Reader, error) { return gzip.NewReader(from) }},
	// Decode one block at a time: then the decoder starts no goroutine that must be stopped.
	{"zstd", "\x28\xb5\x2f\xfd", func(from io.Reader) (io.Reader, error) {
		return zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
	}},
}

// decompress returns the contents of a file, and unpacks them if the first bytes identify a compression. It
// reads concatenated streams as one. A read returns a [*DamagedError] for damaged data.
func decompress(from io.Reader) (*bufio.Reader, error) {
	source := &source{from: from}
	buffered := bufio.NewReaderSize(source, readAhead)
	start, _ := buffered.Peek(6)
	for _, c := range compressions {
		if !bytes.HasPrefix(start, []byte(c.magic)) {
			continue
		}
		unpacked, err := c.open(buffered)
		if err != nil && source.failed == nil {
			return nil, &DamagedError{c.name, err}
		}
		buffered = bufio.NewReaderSize(&damageReader{c.name, source, unpacked}, readAhead)
		break
	}
	if source.failed != nil {
		return nil, source.failed
	}
	start, _ = buffered.Peek(300)
	for _, entry := range entries("unreadable") {
		known := strings.SplitN(entry, " | ", 3)
		magic, at := "", 0
		if _, err := fmt.Sscanf(known[0], "%x %d", &magic, &at); err == nil && len(start) > at && bytes.HasPrefix(start[at:], []byte(magic)) {
			return nil, fmt.Errorf("this is %s: send what is in it to standard input, such as by %s", known[1], known[2])
		}
	}
	if bytes.HasPrefix(start, []byte(byteOrderMark)) {
		_, _ = buffered.Discard(len(byteOrderMark)) // they are there
	}
	for { // a run of NULs at the start may be longer than the peeked bytes
		start, _ = buffered.Peek(readAhead)
		hole := len(start) - len(bytes.TrimLeft(start, "\x00"))
		if hole == 0 {
			break
		}
		_, _ = buffered.Discard(hole)
	}
	if after, isArray := bytes.CutPrefix(bytes.TrimSpace(start), []byte("[")); isArray && bytes.HasPrefix(bytes.TrimSpace(after), []byte("{")) {
		e := &elements{from: io.LimitedReader{R: buffered}}
		e.decoder = json.NewDecoder(&e.from)
		buffered = bufio.NewReaderSize(e, readAhead)
	}
	return buffered, nil
}

// elements writes each element of JSON arrays, and each value between arrays, as a line.
type elements struct {
	from    io.LimitedReader // as far as one may reach
	decoder *json.Decoder
	inside  bool // of an array
	line    bytes.Buffer
}

func (e *elements) Read(p []byte) (int, error) {
	for e.line.Len() == 0 {
		var one json.RawMessage
		var err error
		e.from.N = maxLine
		more, next := e.decoder.More(), []byte{0}
		_, _ = e.decoder.Buffered().Read(next) // More has skipped the space before it
		if more && (e.inside || next[0] != '[') {
			if err = e.decoder.Decode(&one); err == nil {
				_ = json.Compact(&e.line, one) // it is valid
				e.line.WriteByte('\n')
			}
		} else if _, err = e.decoder.Token(); err == nil { // a bracket
			e.inside = more
		} else if errors.Is(err, io.EOF) {
			if !e.inside {
				return 0, io.EOF
			}
			err = io.ErrUnexpectedEOF
		}
		if err != nil && e.from.N == 0 {
			err = errLong
		}
		if err != nil {
			return 0, &DamagedError{"JSON", err}
		}
	}
	return e.line.Read(p)
}

// A source records a read error, which does not mean that the compressed data is damaged.
type source struct {
	from   io.Reader
	failed error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

type damageReader struct {
	compression string
	source      *source
	from        io.Reader
}

func (d *damageReader) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case d.source.failed != nil:
		return n, d.source.failed
	}
	return n, &DamagedError{d.compression, err}
}
