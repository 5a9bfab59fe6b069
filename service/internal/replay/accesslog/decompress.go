package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

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

// Unwrap returns the error of the decoder.
func (e *DamagedError) Unwrap() error { return e.Err }

// compressions are told apart by their first bytes.
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

// unreadable are forms in which a log cannot be read, by the bytes at an offset, and what makes it readable.
var unreadable = []struct {
	name, magic string
	at          int
	unpack      string
}{
	{"in UTF-16, as PowerShell writes it", "\xff\xfe", 0, "iconv -f UTF-16 -t UTF-8 FILE"},
	{"in UTF-16, as PowerShell writes it", "\xfe\xff", 0, "iconv -f UTF-16 -t UTF-8 FILE"},
	{"compressed with bzip2", "BZh", 0, "bzip2 -dc FILE"},
	{"compressed with xz", "\xfd7zXZ\x00", 0, "xz -dc FILE"},
	{"compressed with lz4", "\x04\x22\x4d\x18", 0, "lz4 -dc FILE"},
	{"a zip archive, not a log", "PK\x03\x04", 0, "unzip -p FILE"},
	{"a 7z archive, not a log", "7z\xbc\xaf\x27\x1c", 0, "7z x -so FILE"},
	{"a tar archive, not a log", "ustar", 257, "tar xOf FILE"},
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
	for _, u := range unreadable {
		if len(start) > u.at && bytes.HasPrefix(start[u.at:], []byte(u.magic)) {
			return nil, fmt.Errorf("this is %s: send what is in it to standard input, such as by %s", u.name, u.unpack)
		}
	}
	if bytes.HasPrefix(start, []byte(byteOrderMark)) {
		_, _ = buffered.Discard(len(byteOrderMark)) // they are there
	}
	return buffered, nil
}

// A source notes why compressed data could not be read, which is no damage.
type source struct {
	from   io.Reader
	failed error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
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
	n, err := d.from.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case d.source.failed != nil:
		return n, d.source.failed
	}
	return n, &DamagedError{d.compression, err}
}
