package accesslog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// bzipped is one line by bzip2, which Go's library cannot write.
const bzipped = "\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x4c\x06\x08\x7f\x00\x00\x14\x5f\x80\x40\x10\x50\x0b\xfa\xb0\x02\xc2\x44\x0a\x20\x00\x00\x20\x20\x00\x54\x53\x46\x80\x00\x19\x02\x29\xbd\x26\xd5\x36\xa6\x9e\xa3" +
	"\x40\xd0\xd4\x8f\x60\x3d\xdc\xeb\x38\xaa\x26\xc1\x82\xdf\xfd\x19\x2d\x23\x2b\x0e\x91\xda\xaa\x7e\xe7\xb3\x19\x94\xa2\xcc\x23\x62\x05\x86\xbb\x24\x06\x27\xdf\x7c\x5d\xc9\x14\xe1\x42\x41\x30\x18\x21\xfc"

func numbered(from, to int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&text, "192.0.2.%d - - [17/May/2015:10:05:03 +0000] \"GET /%d HTTP/1.1\" 200 %d\n", i%250, i, i*7919%10007)
	}
	return text.String()
}

var packers = map[string]func(io.Writer) (io.WriteCloser, error){
	"gzip": func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
	"zstd": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
	"xz":   func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
}

func packed(t *testing.T, by, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := packers[by](&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func countRead(t *testing.T, from io.Reader) (Stats, error) {
	t.Helper()
	return Read(t.Context(), "log", from, nil, func(*Record) error { return nil })
}

func TestCompressedLogsOneAfterTheOther(t *testing.T) {
	for name := range packers {
		both := append(packed(t, name, numbered(0, 100)), packed(t, name, numbered(100, 300))...)
		if stats, err := countRead(t, bytes.NewReader(both)); err != nil || stats.Records != 300 || stats.Broken != 0 {
			t.Errorf("%s: %+v, %v", name, stats, err)
		}
	}
	if stats, err := countRead(t, strings.NewReader(bzipped+bzipped)); err != nil || stats.Records != 2 || stats.Broken != 0 {
		t.Errorf("bzip2: %+v, %v", stats, err)
	}
	skippable := append([]byte("\x5a\x2a\x4d\x18\x02\x00\x00\x00ab"), packed(t, "zstd", numbered(0, 5))...)
	if stats, err := countRead(t, bytes.NewReader(skippable)); err != nil || stats.Records != 5 {
		t.Errorf("zstd after a frame to skip: %+v, %v", stats, err)
	}
}

// What comes before the damage is read, and a line that the damage cuts is not.
func TestDamagedLogsGiveWhatTheyHave(t *testing.T) {
	text := numbered(0, 40_000)
	for name := range packers {
		whole := packed(t, name, text)
		for what, tt := range map[string]struct {
			bytes []byte
			say   string
		}{
			"cut off": {whole[:len(whole)/2], "the " + name + " data is cut off"},
			"corrupt": {append(append(bytes.Clone(whole[:len(whole)*3/4]), 0xff, 0x00, 0xff, 0x55, 0xaa), whole[len(whole)*3/4+5:]...), "the " + name + " data is "},
			"changed": {append(bytes.Clone(whole), "\x1f\x8b of something else"...), "the " + name + " data is "},
		} {
			last := -1
			stats, err := Read(t.Context(), "log", bytes.NewReader(tt.bytes), nil, func(r *Record) error {
				if want := fmt.Sprintf("/%d", last+1); r.Path != want && what != "corrupt" { // the decoder writes some of that before it knows
					t.Fatalf("%s, %s: %s instead of %s", name, what, r.Path, want)
				}
				last++
				return nil
			})
			var damaged *DamagedError
			if !errors.As(err, &damaged) || damaged.Compression != name || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if stats.Broken != 0 && what != "corrupt" || what == "changed" && stats.Records != 40_000 || what == "cut off" && (stats.Records < 1_000 || stats.Records > 39_999) {
				t.Errorf("%s, %s: %+v", name, what, stats)
			}
		}
		if _, err := countRead(t, bytes.NewReader(whole[:8])); err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("%s, hardly begun: %v", name, err)
		}
	}
	if stats, err := countRead(t, strings.NewReader(bzipped+bzipped[:60])); err == nil || !strings.Contains(err.Error(), "log: line 2: the bzip2 data is corrupt or cut off") || stats.Records != 1 {
		t.Errorf("bzip2: %+v, %v", stats, err)
	}
}

// A disk or a pipe that fails is no damage.
func TestAReaderThatFailsIsNoDamage(t *testing.T) {
	fault := errors.New("the disk is on fire")
	for name := range packers {
		whole := packed(t, name, numbered(0, 10_000))
		for _, n := range []int{3, len(whole) / 2} {
			_, err := countRead(t, io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(fault)))
			var damaged *DamagedError
			if !errors.Is(err, fault) || errors.As(err, &damaged) {
				t.Errorf("%s, %d bytes: %v", name, n, err)
			}
		}
	}
}

// A line without an end, which a bomb is, ends with the context.
func TestALineThatNeverEndsCanBeInterrupted(t *testing.T) {
	endless := strings.Repeat("x", 1<<24)
	for name, text := range map[string][]byte{"plain": []byte(endless), "gzip": packed(t, "gzip", endless), "zstd": packed(t, "zstd", endless), "xz": packed(t, "xz", endless)} {
		ctx, cancel := context.WithCancel(t.Context())
		first := []byte(numbered(0, 1))
		if name != "plain" {
			first = packed(t, name, string(first))
		}
		stats, err := Read(ctx, "log", bytes.NewReader(append(first, text...)), nil, func(*Record) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) || stats.Records != 1 || stats.Broken != 0 {
			t.Errorf("%s: %+v, %v", name, stats, err)
		}
		cancel()
	}
}

func TestArchivesAreNamed(t *testing.T) {
	tar := append(make([]byte, 257), "ustar\x00"...)
	for say, text := range map[string][]byte{
		"unzip -p FILE": []byte("PK\x03\x04 and more"), "7z x -so": []byte("7z\xbc\xaf\x27\x1c"), "tar xOf": tar, "a tar archive": packed(t, "gzip", string(tar)),
		"lz4 -dc": []byte("\x04\x22\x4d\x18"),
	} {
		if _, err := countRead(t, bytes.NewReader(text)); err == nil || !strings.Contains(err.Error(), say) || !strings.HasPrefix(err.Error(), "log: ") {
			t.Errorf("%s: %v", say, err)
		}
	}
}
