package accesslog

import (
	"strings"
	"testing"
)

// Whatever the bytes are, reading ends, counts every line once, and gives no record without a time.
func FuzzRead(f *testing.F) {
	for i, seed := range []string{
		`192.0.2.7 - frank [17/May/2015:12:05:03 +0200] "GET /a?b=c HTTP/1.0" 200 2326 "-" "\"\\"`,
		`{"ts":1431857103.5,"request":{"uri":"/","headers":{"A":["b"]}},"status":200}`,
		"time,status,\"a b\"\n2015-05-17 10:05:03,200,\"\"\"\"\n",
		`http 2015-05-17T10:05:03.186641Z app/lb/5 192.0.2.7:2817 - -1 -1 -1 460 - 34 366 "- http://h:80- -" "-" - -`,
	} {
		f.Add([]byte(seed), uint8(i+1))
	}
	f.Fuzz(func(t *testing.T, text []byte, format uint8) {
		calls := int64(0)
		opts := &Options{Format: Format(format % 5)}
		stats, err := Read(t.Context(), "f", strings.NewReader(string(text)), opts, func(r *Record) error {
			calls++
			if r.Time < earliest || r.Time > latest || r.Status < 0 || r.Bytes < 0 {
				t.Errorf("%+v", r)
			}
			r.Header("x-a")
			r.Field("a.b.c")
			return nil
		})
		if stats.Lines != stats.Records+stats.Broken || stats.Records != calls || int64(len(stats.First)) != min(stats.Broken, shownBroken) {
			t.Errorf("%+v after %d calls, %v", stats, calls, err)
		}
	})
}

func FuzzTime(f *testing.F) {
	f.Add("1431857103.5")
	f.Add("2015-05-17T10:05:03+0200")
	f.Add("17/May/2015:10:05:03 +0000")
	f.Fuzz(func(t *testing.T, text string) {
		if us, err := parseTime(text); err == nil && (us < earliest || us > latest) {
			t.Errorf("%q: %d", text, us)
		}
	})
}
