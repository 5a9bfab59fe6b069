package redisstore

import (
	"encoding/binary"
	"strings"
	"testing"

	"example.com/sash"
)

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
	number := func(b []byte, fields ...int64) []byte {
		for i := 0; i < len(fields); i += 2 {
			b = appendUint(b, int(fields[i]), fields[i+1])
		}
		return b
	}
	parts := func(texts ...string) []byte {
		var b []byte
		for _, text := range texts {
			b = append(appendUint(b, 4, int64(len(text))), text...)
		}
		return b
	}
	const at = 1_699_999_999_000_000
	log := number(nil, 1, 1, 1, 1, 4, 4, 6, 0, 7, 60_000_000, 6, 10, 7, at, 6, 2, 6, 3, 7, at)
	log = append(log, make([]byte, hintBytes)...)
	log = number(log, 7, at-5, 5, 1, 7, at, 5, 2, 7, 0, 5, 0, 7, 0, 5, 0, 6, 0, 6, 0)
	f.Add([]byte{})
	f.Add(append(head(uint64(len(log))), log...))
	huge := append(head(uint64(len(log))), log...)
	copy(huge[inspectReply+2:], "\xff\xff\xff\xff") // slots
	f.Add(huge)
	huge = append(head(uint64(len(log))), log...)
	copy(huge[inspectReply+32:], "\xff\xff\xff\xff\xff\xff") // head
	f.Add(huge)
	f.Add(append(head(3), parts(string(number(nil, 7, 60_000_000, 6, 10, 7, at, 7, at, 7, 0)), "-inf", "1:1", "1699999999000000", "3:2", "1.6999999990001e+15")...))
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
