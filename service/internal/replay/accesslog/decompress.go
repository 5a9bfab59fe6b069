package accesslog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// zstdWindow bounds the memory of a zstd decoder. It is what zstd --long=27 takes, the most that zstd reads by itself.
const zstdWindow = 128 << 20

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

// Unwrap returns the error of the decoder.
func (e *DamagedError) Unwrap() error { return e.Err }

// compressions are told apart by their first bytes.
var compressions = []struct {
	name  string
	magic string // "?" is any byte
	open  func(io.Reader) (io.Reader, error)
}{
	{"gzip", "\x1f\x8b", func(from io.Reader) (io.Reader, error) { return gzip.NewReader(from) }},
	{"bzip2", "BZh", func(from io.Reader) (io.Reader, error) { return bzip2.NewReader(from), nil }},
	{"xz", "\xfd7zXZ\x00", func(from io.Reader) (io.Reader, error) { return xz.NewReader(from) }},
	{"zstd", "\x28\xb5\x2f\xfd", openZstd},
	{"zstd", "?\x2a\x4d\x18", openZstd}, // a skippable frame comes first, as pzstd writes it
}

func openZstd(from io.Reader) (io.Reader, error) {
	// One block after the other: then the decoder has no goroutine that must be ended.
	return zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
}

// archives are forms in which a log cannot be read, by the bytes at an offset.
var archives = []struct {
	name, magic string
	at          int
	unpack      string
}{
	{"zip", "PK\x03\x04", 0, "unzip -p FILE"},
	{"7z", "7z\xbc\xaf\x27\x1c", 0, "7z x -so FILE"},
	{"tar", "ustar", 257, "tar xOf FILE"},
	{"lz4", "\x04\x22\x4d\x18", 0, "lz4 -dc FILE"},
}

// decompress returns what a file holds, unpacked if its first bytes are those of gzip, bzip2, xz or zstd. Several compressed
// files one after the other are read as one. A read that meets damage returns a [*DamagedError].
func decompress(ctx context.Context, from io.Reader) (*bufio.Reader, error) {
	source := &source{ctx: ctx, from: from}
	buffered := bufio.NewReaderSize(source, readAhead)
	start, _ := buffered.Peek(6)
	if source.failed != nil {
		return nil, source.failed
	}
	for _, c := range compressions {
		if !hasMagic(start, c.magic) {
			continue
		}
		unpacked, err := c.open(buffered)
		if err == nil {
			buffered = bufio.NewReaderSize(&damageReader{c.name, source, unpacked}, readAhead)
			break
		}
		if source.failed != nil {
			return nil, source.failed
		}
		return nil, &DamagedError{c.name, err}
	}
	start, _ = buffered.Peek(300)
	if bytes.HasPrefix(start, []byte(byteOrderMark)) {
		_, err := buffered.Discard(len(byteOrderMark))
		return buffered, err
	}
	if bytes.HasPrefix(start, []byte("\xff\xfe")) || bytes.HasPrefix(start, []byte("\xfe\xff")) {
		return nil, errors.New("the text is in UTF-16, as PowerShell writes it: send it in UTF-8 to standard input, such as by iconv -f UTF-16 -t UTF-8 FILE")
	}
	for _, a := range archives {
		if len(start) > a.at && bytes.HasPrefix(start[a.at:], []byte(a.magic)) {
			return nil, fmt.Errorf("this is a %s archive, not a log: send what is in it to standard input, such as by %s", a.name, a.unpack)
		}
	}
	return buffered, nil
}

const (
	readAhead     = 1 << 16  // bytes
	byteOrderMark = "\ufeff" // editors and exports on Windows begin text with it
)

func hasMagic(start []byte, magic string) bool {
	for i := range len(magic) {
		if i >= len(start) || magic[i] != '?' && magic[i] != start[i] {
			return false
		}
	}
	// Any first byte would do otherwise; those of skippable frames are 0x50 to 0x5f.
	return magic[0] != '?' || start[0]&0xf0 == 0x50
}

// A source notes why compressed data could not be read, which is no damage.
type source struct {
	ctx    context.Context // also ends a line that never does
	from   io.Reader
	failed error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.failed = s.ctx.Err(); s.failed != nil {
		return 0, s.failed
	}
	n, err := s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

// A damageReader turns errors of a decoder into a DamagedError.
type damageReader struct {
	compression string
	source      *source
	from        io.Reader
}

// Read implements io.Reader.
func (d *damageReader) Read(p []byte) (int, error) {
	if err := d.source.ctx.Err(); err != nil { // little data can be much when unpacked
		return 0, err
	}
	n, err := d.from.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case d.source.failed != nil:
		return n, d.source.failed
	}
	return n, &DamagedError{d.compression, err}
}
