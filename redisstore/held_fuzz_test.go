package redisstore

import (
	"strings"
	"testing"

	"example.com/sash/driver"
)

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
