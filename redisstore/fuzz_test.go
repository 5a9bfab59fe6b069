package redisstore

import (
	"encoding/binary"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
)

// FuzzReply reads replies of any bytes: an answer that makes sense, or an error that says who is wrong.
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
		if n, err := unpackCount(string(reply)); (err == nil) != (n > 0) {
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
			answers := make([]driver.Answer, len(reqs))
			if rest, lefts := cutLefts(string(reply), len(reqs)); lefts != "" { // of block.lua
				if decided, _, err := unpack(reqs, rest, answers); err == nil && decided && bar(answers, lefts) == nil {
					for i := range answers {
						if left := number(lefts[8*i:]); answers[i].Blocked != (left > 0) || left > 0 && answers[i].Retry() < int64(left) {
							t.Errorf("subject %d, blocked for %d: %+v", i, left, answers[i])
						}
					}
				}
				answers = make([]driver.Answer, len(reqs))
			}
			decided, _, err := unpack(reqs, string(reply), answers)
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
			for i, res := range answers {
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
