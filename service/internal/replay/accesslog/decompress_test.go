package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"example.com/sash/service/internal/servertest"
)

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
}

func packed(t *testing.T, by, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := servertest.Must(packers[by](&out))(t)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	servertest.Check(t, w.Close())
	return out.Bytes()
}

func countRead(t *testing.T, from io.Reader) (Stats, error) {
	t.Helper()
	return Read("log", from, Options{}, func(*Record) error { return nil })
}

func TestCompressedLogsOneAfterTheOther(t *testing.T) {
	for name := range packers {
		both := append(packed(t, name, numbered(0, 100)), packed(t, name, numbered(100, 300))...)
		if stats, err := countRead(t, bytes.NewReader(both)); err != nil || stats.Records != 300 || stats.Broken != 0 {
			t.Errorf("%s: %+v, %v", name, stats, err)
		}
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
			stats, err := Read("log", bytes.NewReader(tt.bytes), Options{}, func(r *Record) error {
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

func TestArchivesAreNamed(t *testing.T) {
	tar := append(make([]byte, 257), "ustar\x00"...)
	for say, text := range map[string][]byte{
		"unzip -p FILE": []byte("PK\x03\x04 and more"), "7z x -so": []byte("7z\xbc\xaf\x27\x1c"), "tar xOf": tar, "a tar archive": packed(t, "gzip", string(tar)),
		"lz4 -dc": []byte("\x04\x22\x4d\x18"), "xz -dc": []byte("\xfd7zXZ\x00"), "bzip2 -dc": []byte("BZh9"),
	} {
		if _, err := countRead(t, bytes.NewReader(text)); err == nil || !strings.Contains(err.Error(), say) || !strings.HasPrefix(err.Error(), "log: ") {
			t.Errorf("%s: %v", say, err)
		}
	}
}
