package redisstore

import (
	"encoding/binary"
	"strings"
	"testing"

	"example.com/sash/driver"
)

// FuzzLeases reads values of any bytes: leases, or an error that says why not, and never more of them than the bytes have
// room for.
func FuzzLeases(f *testing.F) {
	reply := func(value string) []byte {
		var b []byte
		for _, n := range []uint64{1_700_000_000_000_000, 5000, 100, uint64(len(value))} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		return append(append(b, value...), "0x7fb1f54df8"...)
	}
	demand := string(appendUint(appendUint([]byte{1, 0, 0, 0, 0, 0, 0, 9}, 7, 1_699_999_999_000_000), 5, 3)) + "\x00\x00\x00\x00\x02"
	long := demand + strings.Repeat("\x00\x00\x00\x00\x07", 4) + "0x7fb1f54df8" + strings.Repeat("\x00", 48)
	f.Add([]byte{})
	f.Add(reply(""))
	f.Add(reply(demand))
	f.Add(reply(long + "\x00"))
	f.Add(reply(long + "\x01" + strings.Repeat("\x00", 29) + "\x04note"))
	f.Add(reply(long + "\x01" + strings.Repeat("\x00", 29) + "\x05note"))
	f.Add(reply(long + "\xff" + strings.Repeat("\x00", 255*leaseBytes)))
	f.Fuzz(func(t *testing.T, reply []byte) {
		l, err := readLeases(reply)
		switch {
		case err != nil:
			if l != nil || !strings.HasPrefix(err.Error(), "redisstore: ") {
				t.Errorf("%v, and the error %q", l, err)
			}
		case l != nil:
			if n := len(l.Leases); n > driver.MaxLeases || n*leaseBytes > len(reply) {
				t.Errorf("%d leases out of %d bytes", n, len(reply))
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
			if h != (driver.Held{}) || !strings.HasPrefix(err.Error(), "redisstore: ") {
				t.Errorf("%+v, and the error %q", h, err)
			}
			return
		}
		if h.At < 0 || h.Left < 0 || h.Refused < 0 || h.Wait < 0 || h.Rest < -1 || len(h.Note) > driver.MaxNote {
			t.Errorf("%q is %+v", reply, h)
		}
		if !h.Spent && h.Refused == 0 && !h.Down && !h.Alone && h.Errand == 0 && h.Wait == 0 {
			t.Errorf("%q says nothing", reply)
		}
	})
}
