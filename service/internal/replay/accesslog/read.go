// Package accesslog reads the access logs of web servers, proxies and load balancers.
//
// [Read] detects the format from the first lines: one of a table of formats, or the server's own description of it, nginx's
// log_format or Apache's LogFormat ([Options.Format]). What stands around the lines is detected too and taken off: the
// prefixes of container runtimes, Docker's JSON, syslog, what journalctl writes, and the names that compose writes.
//
// Lines that cannot be parsed are counted and skipped. [Stats] says what was understood.
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

// Stats says what was understood of a log, and counts what was read. Add sums several logs.
type Stats struct {
	// Format names what the lines were read as, for people, such as "combined". It is empty for an empty log. Several logs
	// that differ have a list.
	Format string
	// Wrapping names what stands around each line, for people, such as "containerd (CRI)". It is empty if nothing does.
	Wrapping string
	// Client says where clients' addresses are from, such as "X-Forwarded-For, the first one"; empty is the peer.
	Client string
	// Notes are sentences on choices between fields that a reader may see differently.
	Notes []string

	Lines    int64 // non-empty lines
	Records  int64
	Messages int64 // what the server says beside its requests
	Broken   int64
	First    []Broken // the first few of the broken lines

	// Ends counts the records whose time is that of the end, and Times says how starts are known, such as "msec less
	// request_time".
	Ends  int64
	Times string
	// Peers counts the records that came from each address which forwarded for another one and is not trusted.
	Peers map[string]int64
}

// Add adds another log.
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

// Read reads a log, compressed with gzip or zstd or not at all, and calls each for every record in the order of the file. It
// reuses the record, but not the strings in it, for the next line. Errors begin with name. An error is from reading, from the
// options, or from each; a [*DamagedError] comes after the last whole line.
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
	from      string // how the last start is known
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

// nginxError begins a line of nginx's error log, which containers write among the requests.
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
	end    byte // of a line: "\n", or "\r" if the log begins without any "\n"
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

// next returns a line, which is valid until the next call. The error errLong concerns that line only.
func (l *lines) next() ([]byte, error) {
	l.number++
	line, err := l.from.ReadSlice(l.end)
	// A file that is copied and truncated under its writer begins with NULs, and one after a crash ends with them.
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
	// zstdWindow bounds the memory of a zstd decoder. It is what zstd --long=27 takes, the most that zstd reads by itself.
	zstdWindow = 128 << 20
)

// A DamagedError reports compressed data that is cut off or corrupt. Everything before the damage was read.
type DamagedError struct {
	// Compression is its name, such as "gzip".
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
	// One block after the other: then the decoder has no goroutine that must be ended.
	{"zstd", "\x28\xb5\x2f\xfd", func(from io.Reader) (io.Reader, error) {
		return zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
	}},
}

// decompress returns what a file holds, unpacked if its first bytes are those of a compression. Several compressed files one
// after the other are read as one. A read that meets damage returns a [*DamagedError].
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
	for { // a hole at the begin may be longer than what is looked at
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

// elements are those of JSON arrays one after the other, and values between them, each as a line.
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

// A source notes why compressed data could not be read, which is no damage.
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
