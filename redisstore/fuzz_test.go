package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/window"
)

// FuzzReply reads replies of any bytes: an answer that makes sense, or an error that names the package.
func FuzzReply(f *testing.F) {
	answer := func(numbers ...int64) []byte {
		var b []byte
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		return b
	}
	f.Add([]byte{})
	f.Add(answer(-1, 1_700_000_000_000_000))
	f.Add(answer(0, 1_700_000_000_000_000, 9, 0, 5, 5))
	f.Add(answer(1, 1_700_000_000_000_000, 0, 7, 7, 9))
	f.Add(answer(2, 1_700_000_000_000_000, 0, 7, 7, 9))
	f.Add(answer(0, 1_700_000_000_000_000, 0, -7, 7, 9))
	f.Add(answer(1, 1_700_000_000_000_000, 0, 7, 7, 9, 600_000_000))
	f.Add(answer(0, 1_700_000_000_000_000, 9, 0, 5, 5, -1))
	f.Add(answer(2, 1_700_000_000_000_000, 9, 0, 5, 5, 9, 0, 5, 5, 0, 1<<62, 5, 5))
	one, err := sash.NewPolicy(nil, sash.PerMinute(10))
	if err != nil {
		f.Fatal(err)
	}
	two, err := sash.NewPolicy(nil, sash.PerMinute(10), sash.PerHour(20))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		store := New(replies(reply), nil)
		if n, err := store.Instances(t.Context(), "group", "id", time.Second); (err == nil) != (n > 0) {
			t.Errorf("%d instances, %v", n, err)
		}
		var taken driver.Answer
		if rest := unpackCharged(string(reply), &taken); taken.Charged != 0 && len(rest) != len(reply)-8 {
			t.Errorf("%d units in %d bytes", taken.Charged, len(reply))
		}
		for _, reqs := range [][]driver.Request{
			{{Key: "k", Cost: 1, Policy: one}},
			{{Key: "k", Cost: 1, Policy: two}, {Key: "l", Cost: 2, Policy: one}},
		} {
			fresh := func() (ops []driver.Op) {
				for _, req := range reqs {
					ops = append(ops, driver.Op{Settlement: driver.Settlement{Request: req}})
				}
				return ops
			}
			if rest, lefts := cutLefts(string(reply), len(reqs)); lefts != "" { // of block.lua
				ops := fresh()
				if decided, _, err := unpack(ops, rest); err == nil && decided && bar(ops, lefts) == nil {
					for i := range ops {
						answer := &ops[i].Answer
						if left := number(lefts[8*i:]) % (1 << 52); answer.Blocked != (left > 0) || left > 0 && answer.Retry() < int64(left) {
							t.Errorf("subject %d, blocked for %d: %+v", i, left, answer)
						}
					}
				}
			}
			ops := fresh()
			decided, _, err := unpack(ops, string(reply))
			if err != nil {
				if !strings.HasPrefix(err.Error(), "redisstore: ") || decided {
					t.Errorf("decided %v, and the error %q", decided, err)
				}
				continue
			}
			if !decided {
				continue
			}
			refused := false
			for i := range ops {
				res := &ops[i].Answer
				limits := res.Statuses()
				if len(limits) != len(reqs[i].Policy.Limits) {
					t.Fatalf("%d limits", len(limits))
				}
				refused = refused || !res.Allowed()
				for _, l := range limits {
					if l.Remaining < 0 || l.Retry < 0 || l.Release < 0 || l.Reset < 0 {
						t.Errorf("%+v", l)
					}
				}
			}
			if bits := binary.BigEndian.Uint64(reply); refused != (bits != 0) {
				t.Errorf("refused %v, and the bits are %x", refused, bits)
			}
		}
	})
}

// FuzzHeld reads replies of any bytes: an answer that says what a caller does, or an error.
func FuzzHeld(f *testing.F) {
	f.Add("")
	for what := range byte(8) {
		f.Add(strings.Repeat("\x00", 7) + string([]byte{what}) + strings.Repeat("\x00", 25) + "note")
	}
	f.Fuzz(func(t *testing.T, reply string) {
		h, err := unpackHeld(reply)
		if err != nil {
			if h != (window.Held{}) || !strings.HasPrefix(err.Error(), "redisstore: ") {
				t.Errorf("%+v, and the error %q", h, err)
			}
			return
		}
		if h.At < 0 || h.Left < 0 || h.Refused < 0 || h.Wait < 0 || h.Rest < -1 || len(h.Reply) > window.MaxReply {
			t.Errorf("%q is %+v", reply, h)
		}
		if !h.Spent && h.Refused == 0 && !h.Down && !h.Alone && h.Fetch == 0 && h.Wait == 0 {
			t.Errorf("%q says nothing", reply)
		}
	})
}

// FuzzInspect reads values of any bytes: a state or an error; and never more memory than
// the bytes have room for.
func FuzzInspect(f *testing.F) {
	head := func(size uint64) []byte {
		var b []byte
		for _, n := range []uint64{1_700_000_000_000_000, 5000, 100, size} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		return b
	}
	const at = 1_699_999_999_000_000
	log := appendUint(nil, 1, 1, 1, 1, 4, 4, 6, 0, 7, 60_000_000, 6, 10, 7, at, 6, 2, 6, 3, 7, at)
	log = append(log, make([]byte, hintBytes)...)
	log = appendUint(log, 7, at-5, 5, 1, 7, at, 5, 2, 7, 0, 5, 0, 7, 0, 5, 0, 6, 0, 6, 0)
	f.Add([]byte{})
	f.Add(append(head(uint64(len(log))), log...))
	huge := append(head(uint64(len(log))), log...)
	copy(huge[inspectReply+2:], "\xff\xff\xff\xff") // slots
	f.Add(huge)
	huge = append(head(uint64(len(log))), log...)
	copy(huge[inspectReply+32:], "\xff\xff\xff\xff\xff\xff") // head
	f.Add(huge)
	f.Add(append(head(1), 0xff, 0xff, 0xff, 0xff))

	f.Fuzz(func(t *testing.T, reply []byte) {
		for _, a := range sash.Algorithms() {
			s, err := readState(a, reply)
			switch {
			case err != nil && (s != nil || !strings.HasPrefix(err.Error(), "redisstore: ")):
				t.Errorf("%v: %v, and the error %q", a, s, err)
			case s != nil && cap(s.Entries) > len(reply)/8:
				t.Errorf("%v: room for %d entries out of %d bytes", a, cap(s.Entries), len(reply))
			}
		}
	})
}

// replies is a Scripter whose server replies the same to every script.
type replies string

func (s replies) Run(context.Context, *Script, []string, string) (string, error) {
	return string(s), nil
}
func (s replies) Cluster() bool { return false }

// TestAShortReplyToABatchIsAnError states that whatever a server replies to a batch ends in answers or an error.
func TestAShortReplyToABatchIsAnError(t *testing.T) {
	policy, err := sash.NewPolicy(nil, sash.PerMinute(10))
	if err != nil {
		t.Fatal(err)
	}
	reqs := []driver.Request{{Key: "k", Cost: 1, Policy: policy}, {Key: "k", Cost: 1, Policy: policy}}
	for size := range 2 * (24 + 32) {
		_, err := drivertest.Of(New(replies(strings.Repeat("\x00", size)), nil)).Each(t.Context(), reqs...)
		if err == nil || errors.Is(err, driver.ErrApart) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := drivertest.Of(New(replies(strings.Repeat("\x00", 2*(24+32))), nil)).Each(t.Context(), reqs...); err != nil {
		t.Errorf("a whole reply: %v", err)
	}
}
