package window

import (
	"errors"
	"reflect"
	"testing"

	"example.com/sash/driver"
)

// What a log needs comes back, the position of its entries and what had left before them aside.
func TestALogComesBack(t *testing.T) {
	l := &Log{Resolution: 10}
	limits := []driver.Limit{{Units: 1_000_000, Window: 1000}}
	for at := int64(1); at < 4000; at += 30 {
		l.Charge(at, at%7+1, limits)
	}
	l.joined, l.moved = 17, 18
	l.booked = &booked{19, false, 20, 21}
	b := AppendState([]byte{1, 2}, l)
	s, rest, err := Decode(append(b[2:], 9))
	if err != nil || len(rest) != 1 {
		t.Fatal(err, rest)
	}
	got := s.(*Log)
	if *got.booked != *l.booked {
		t.Errorf("%+v came back as %+v", l.booked, got.booked)
	}
	want := []int64{l.Resolution, l.keep, l.units, l.joined, l.moved, int64(l.head - l.lo), l.Expires()}
	have := []int64{got.Resolution, got.keep, got.units, got.joined, got.moved, int64(got.head - got.lo), got.Expires()}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%v came back as %v", want, have)
	}
	for i := range l.head - l.lo {
		a, b := *l.slot(l.lo + i), *got.slot(got.lo + i)
		if a.at != b.at || a.sum-l.gone != b.sum {
			t.Fatalf("entry %d: %v, %v", i, a, b)
		}
	}
}

func TestDecodeRefusesWhatIsNoState(t *testing.T) {
	l := &Log{Resolution: 1}
	l.Charge(5, 1, []driver.Limit{{Units: 1, Window: 10}})
	b := AppendState(nil, l)
	for n := range b {
		if _, _, err := Decode(b[:n]); !errors.Is(err, ErrEncoding) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	if _, _, err := Decode([]byte{kindLog, 2, 2, 2, 0, 0, 4, 2, 2, 0, 2}); !errors.Is(err, ErrEncoding) {
		t.Errorf("two entries of one instant: %v", err)
	}
}
