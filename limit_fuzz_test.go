package sash_test

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
)

// FuzzParseLimit shows that what is read can be enforced, and is the same when it is written and read
// again; and that what cannot be read is an error of its own kind.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{
		"300/5m", "25/5s", "9500/24h", "60/h", "1000/7d", "10000/day@America/Los_Angeles", "1/month@UTC", "5/hour@UTC",
		"1/1m0.5s", "1/1h0.000001s", "10/400d", "1/1ms", "1/0s", "-1/5s", "/", "", "1/d", "1/1d2h", "1099511627775/1s",
		"1/9223372036854775807ns", "1/day@", "1/day@../../etc/passwd", "1/day@Local", "1/\x00", "+1/5s", "1/-5s", "1/99999999999d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := sash.ParseLimit(s)
		if err != nil {
			if !errors.Is(err, sash.ErrInvalidLimit) {
				t.Errorf("%q: the error %v is not ErrInvalidLimit", s, err)
			}
			if l != (sash.Limit{}) {
				t.Errorf("%q: an error came with the limit %v", s, l)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%q was read as a limit that cannot be enforced: %v", s, err)
		}
		again, err := sash.ParseLimit(l.String())
		if err != nil {
			t.Fatalf("%q was written as %q, which cannot be read: %v", s, l, err)
		}
		if again.Units != l.Units || again.Window != l.Window || again.Period != l.Period || zone(again) != zone(l) {
			t.Errorf("%q was read as %v, and that as %v", s, l, again)
		}
	})
}

// FuzzLimitString is the other way round: every limit that can be enforced can be written and read.
func FuzzLimitString(f *testing.F) {
	f.Add(int64(300), int64(5*time.Minute))
	f.Add(int64(1), int64(90*time.Minute+time.Microsecond))
	f.Add(int64(7), int64(36*time.Hour))
	f.Fuzz(func(t *testing.T, units, window int64) {
		l := sash.Every(units, time.Duration(window))
		if l.Validate() != nil {
			return
		}
		if again, err := sash.ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("%v was read as %v, %v", l, again, err)
		}
	})
}

func zone(l sash.Limit) string {
	if l.Zone == nil {
		return "none"
	}
	return l.Zone.String()
}
