package resp

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/sash"
)

// The replies of redis-cell: limited, limit, remaining, retry after and reset after. After a burst the retry time is longer
// than there, because the whole burst counts until it leaves the window.
func TestThrottleRepliesAsRedisCell(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	for range 15 {
		c.do("CL.THROTTLE user123 15 30 60")
	}
	c.is("CL.THROTTLE user123 15 30 60", "[0 16 0 -1 32]")
	c.is("CL.THROTTLE user123 15 30 60", "[1 16 0 32 32]")
	c.is("CL.THROTTLE other 15 30 60", "[0 16 15 -1 32]")
	c.is("CL.THROTTLE other 15 30 60 5", "[0 16 10 -1 32]")
	c.is("cl.throttle other 15 30 60 0", "[0 16 10 -1 32]") // looks
	c.is("CL.THROTTLE other 15 30 60 11", "[1 16 10 32 32]")
	c.is("CL.THROTTLE other 15 30 60 17", "[1 16 10 -1 32]") // never fits, and nothing is charged
	p.pass(31*time.Second + time.Millisecond)
	c.is("CL.THROTTLE user123 15 30 60", "[1 16 0 1 1]") // a second too many rather than too few
	p.pass(time.Second)
	c.is("CL.THROTTLE user123 15 30 60", "[0 16 15 -1 32]")
	c.is("CL.THROTTLE once 0 1 2", "[0 1 0 -1 2]")
	c.is("CL.THROTTLE once 0 1 2", "[1 1 0 2 2]")
	c.is("CL.THROTTLE once 0 1 2 0", "[0 1 0 -1 2]") // redis-cell never limits one that looks
}

func TestThrottleRejectsWrongArgumentsAsRedisCell(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	const usage = "-Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
	for command, want := range map[string]string{
		"CL.THROTTLE":                             usage,
		"CL.THROTTLE k 15 30":                     usage,
		"CL.THROTTLE k 15 30 60 1 1":              usage,
		"CL.THROTTLE k many 30 60":                "-Cell error: Couldn't parse as integer: many",
		"CL.THROTTLE k 15 30 60 1.5":              "-Cell error: Couldn't parse as integer: 1.5",
		"CL.THROTTLE k 15 99999999999999999999 1": "-Cell error: Couldn't parse as integer: 99999999999999999999",
		"CL.THROTTLE k -1 30 60":                  "-Cell error: max_burst is 0 to ",
		"CL.THROTTLE k 9223372036854775807 1 1":   "-Cell error: max_burst is 0 to ",
		"CL.THROTTLE k 15 0 60":                   "-Cell error: count per period must be at least 1",
		"CL.THROTTLE k 15 30 0":                   "-Cell error: period is 1 to ",
		"CL.THROTTLE k 15 30 9223372036854775807": "-Cell error: period is 1 to ",
		"CL.THROTTLE k 15 30 60 -1":               "-Cell error: quantity must not be negative",
		"CL.THROTTLE k 0 1000000 1":               "-Cell error: 1 units at 1000000 in 1 s are a window of less than 1ms",
		"CL.THROTTLE k 1000000 1 86400":           "-Cell error: 1000001 units at 1 in 86400 s are a window of less than 1ms or more than 9600h0m0s",
	} {
		c.begins(command, want)
	}
	c.is("CL.THROTTLE k 15 30 60", "[0 16 15 -1 32]") // nothing of it was charged
	if got := p.invalid.Load(); got != 14 {
		t.Errorf("%d wrong commands were counted, want 14", got)
	}
}

// The window is max_burst and one units at the rate, rounded up to a microsecond.
func TestTheWindowOfThrottle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		burst := rapid.Int64Range(0, sash.MaxUnits-1).Draw(t, "max_burst")
		count := rapid.Int64Min(1).Draw(t, "count")
		period := rapid.Int64Range(1, int64(sash.MaxWindow/time.Second)).Draw(t, "period")
		exact := new(big.Int).Mul(big.NewInt(period*1e6), big.NewInt(burst+1))
		up, rest := exact.QuoRem(exact, big.NewInt(count), new(big.Int))
		if rest.Sign() > 0 {
			up.Add(up, big.NewInt(1))
		}
		limit, err := slidingLimit(burst, count, period)
		fits := up.Cmp(big.NewInt(sash.MinWindow.Microseconds())) >= 0 && up.Cmp(big.NewInt(sash.MaxWindow.Microseconds())) <= 0
		switch {
		case fits != (err == nil):
			t.Fatalf("a window of %v µs: %v", up, err)
		case fits && (limit.Window.Microseconds() != up.Int64() || limit.Units != burst+1):
			t.Fatalf("%v, want %d units in %v µs", limit, burst+1, up)
		}
	})
}
