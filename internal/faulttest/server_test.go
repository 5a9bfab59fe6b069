package faulttest

import (
	"errors"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// The server forgets its scripts again and again. No caller notices.
func TestScriptsAreFlushed(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		l := limiter(t, a.open(t, to(server.Addr(), patient)), limits...)
		load := startOn(t, l, patient)
		for range 30 {
			more(t, "admissions between two flushes", &load.admitted, 15)
			server.Must(t, "SCRIPT", "FLUSH")
		}
		all := load.stop()

		all.isExact(t, used(t, l, subject), limits...)
		all.log(t, "30 flushes")
	})
}

// The server has no memory left, for a while. Refusals go on, and a call that fails is not charged.
func TestMemoryIsUsedUp(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		l := limiter(t, a.open(t, to(server.Addr(), patient)), limits...)
		load := startOn(t, l, patient)
		for range 3 {
			more(t, "admissions before the fault", &load.admitted, 100)
			server.Must(t, "CONFIG", "SET", "maxmemory", "1")
			more(t, "calls that fail", &load.failed, 50)
			server.Must(t, "CONFIG", "SET", "maxmemory", "0")
		}
		await(t, "the limit is reached", func() bool { return used(t, l, subject) == long.Units })
		failed := load.failed.Load()
		server.Must(t, "CONFIG", "SET", "maxmemory", "1")
		more(t, "refusals without memory", &load.refused, 200)
		if n := load.failed.Load() - failed; n > 0 {
			t.Errorf("%d refusals failed without memory", n)
		}
		all := load.stop()

		for _, c := range all.failed() {
			if !errors.Is(c.err, sash.ErrUnavailable) || !strings.Contains(c.err.Error(), "OOM") {
				t.Fatalf("a call without memory: %v", c.err)
			}
		}
		charges := used(t, l, subject)
		all.isExact(t, charges, limits...)
		all.log(t, "%d units are charged", charges)
	})
}
