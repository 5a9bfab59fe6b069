package resp

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

func TestAllowByRule(t *testing.T) {
	p := open(t, "")
	c := p.connect(t)
	c.is("SASH.ALLOW shop ENTRY user 42",
		"[allowed 1 remaining 2 retry_after 0 reset_after 60 refused_by null limits [[name 3/1m units 3 window 60 remaining 2]] source store]")
	p.pass(1500 * time.Millisecond)
	c.begins("sash.allow shop cost 2 entry user 42", "[allowed 1 remaining 0 ")
	c.is("SASH.ALLOW shop ENTRY user 42",
		"[allowed 0 remaining 0 retry_after 58.5 reset_after 60 refused_by 3/1m limits [[name 3/1m units 3 window 60 remaining 0]] source store]")
	c.do("HELLO 3")
	c.is("SASH.ALLOW shop ENTRY user 42",
		"{allowed:0 remaining:0 retry_after:,58.5 reset_after:,60 refused_by:3/1m limits:[{name:3/1m units:3 window:,60 remaining:0}] source:store}")
	c.is("SASH.ALLOW shop ENTRY free 42", "{allowed:1 remaining:null retry_after:,0 reset_after:,0 refused_by:null limits:[] source:null}")
	c.is("SASH.ALLOW shop ENTRY nothing 42", "{allowed:1 remaining:null retry_after:,0 reset_after:,0 refused_by:null limits:[] source:null}")
	p.pass(58500 * time.Millisecond)
	c.begins("SASH.ALLOW shop ENTRY user 42", "{allowed:1 remaining:0 ")
	for range 3 { // a command with an ID is charged once
		c.begins("SASH.ALLOW shop ENTRY user 43 ID order-1", "{allowed:1 remaining:2 ")
	}
}

// The key of limits that commands bring along is one subject, however it is limited.
func TestAllowByLimitsThatTheCommandBrings(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	c.is("SASH.ALLOW user:42 LIMIT 2/5s LIMIT 300/1m",
		"[allowed 1 remaining 1 retry_after 0 reset_after 60 refused_by null "+
			"limits [[name 2/5s units 2 window 5 remaining 1] [name 300/1m units 300 window 60 remaining 299]] source store]")
	c.is("CL.THROTTLE user:42 9 10 10", "[0 10 8 -1 10]")
	c.begins("SASH.ALLOW user:42 LIMIT 2/5s", "[allowed 0 remaining 0 retry_after 5 reset_after 5 refused_by 2/5s ")
	c.begins("SASH.ALLOW shop LIMIT 2/5s", "[allowed 1 remaining 1 ") // a key, not the domain
	c.begins("SASH.ALLOW shop ENTRY user user:42", "[allowed 1 remaining 2 ")
}

func TestWrongArguments(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	for command, want := range map[string]string{
		"SASH.ALLOW":                                  "-ERR wrong number of arguments for 'sash.allow' command",
		"SASH.ALLOW shop ENTRY user":                  "-ERR syntax error: ENTRY needs 2 behind it",
		"SASH.ALLOW shop COST 1":                      "-ERR syntax error: give ENTRY key value",
		"SASH.ALLOW shop ENTRY user 42 COST":          "-ERR syntax error: COST needs 1 behind it",
		"SASH.ALLOW shop ENTRY user 42 COST x":        "-ERR value is not an integer or out of range: COST x",
		"SASH.ALLOW shop ENTRY user 42 COST 1 COST 2": "-ERR syntax error: COST is there twice",
		"SASH.ALLOW shop ENTRY user 42 ID a ID b":     "-ERR syntax error: ID is there twice",
		"SASH.ALLOW shop ENTRY user 42 NOW 1":         "-ERR syntax error: 'NOW' is no option here: give ENTRY key value, or LIMIT limit, COST units, ID",
		"SASH.ALLOW shop ENTRY user 42 LIMIT 25/5s":   "-ERR syntax error: ENTRY is for the rules of a domain, and LIMIT for a key",
		"SASH.ALLOW key LIMIT 25":                     `-ERR sash: invalid limit: "25"`,
		"SASH.ALLOW key LIMIT 0/5s":                   "-ERR sash: invalid limit",
		"SASH.ALLOW nowhere ENTRY user 42":            "-SASHRULE ",
		"SASH.ALLOW shop ENTRY user 42 COST 0":        "-SASHCOST ",
		"SASH.ALLOW shop ENTRY user 42 COST 4":        "-SASHCOST ",
		"SASH.ALLOW key LIMIT 25/5s COST 26":          "-SASHCOST ",
		"SASH.ALLOW shop ENTRY user 42 \xff":          "-ERR an argument is not UTF-8",
	} {
		c.begins(command, want)
	}
	for _, args := range [][]string{{"shop", "ENTRY", "user", ""}, {"shop", "ENTRY", "", "42"}, {"", "ENTRY", "user", "42"}, {" ", "LIMIT", "25/5s"}} {
		c.send(encode(append([]string{"SASH.ALLOW"}, args...)...))
		c.gets("-ERR")
	}
	c.begins("SASH.ALLOW shop ENTRY user 42", "[allowed 1 remaining 2 ") // nothing of it was charged
}

// Each booking starts when it fits behind those before it, and one that would wait for too long is refused.
func TestBookingsWaitTheirTurn(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	for _, want := range []string{"0", "0", "0", "60", "60", "60"} {
		got := c.do("SASH.BOOK shop ENTRY user 42 WITHIN 90.5")
		if !strings.HasPrefix(got, "[allowed 1 ") || !strings.Contains(got, " start_after "+want+"]") {
			t.Errorf("%s, want start_after %s", got, want)
		}
	}
	c.begins("SASH.BOOK shop ENTRY user 42 WITHIN 90.5", "[allowed 0 remaining 0 retry_after 120 ")
	c.begins("SASH.BOOK shop ENTRY user 42", "-ERR syntax error: give WITHIN seconds")
	c.begins("SASH.BOOK shop ENTRY user 42 WITHIN 0", "-ERR syntax error: give WITHIN seconds")
	c.begins("SASH.BOOK shop ENTRY user 42 WITHIN 5m", "-ERR value is not a number of seconds: WITHIN 5m")
	c.begins("SASH.BOOK shop ENTRY user 42 WITHIN -1", "-ERR value is not a number of seconds: WITHIN -1")
	c.begins("SASH.BOOK shop ENTRY user 42 WITHIN 3601", "-ERR WITHIN 3601: it can be up to 3600 seconds here (sash serve --max-wait)")
	c.begins("SASH.BOOK shop ENTRY counted 42 WITHIN 1", "-SASHRULE ")
}

// Without the right to book further, callers who never come hold a subject for as long as its rule says, in seconds, whatever
// they ask for.
func TestBookingsHoldASubjectForSeconds(t *testing.T) {
	for _, tt := range []struct {
		access, subject string
		after           time.Duration // the longest wait, and the window
		held            bool
	}{
		{"", "shop ENTRY user 42", config.DefaultMaxWait + time.Minute, false},
		{"", "shop ENTRY patient 42", 3 * time.Minute, false},
		{"", "shop ENTRY patient 42", config.DefaultMaxWait + time.Minute, true},
		{"anonymous: {allow: [decide, override]}", "key LIMIT 1/2s", config.DefaultMaxWait + 2*time.Second, false},
		{`anonymous: {allow: {shop: [decide], "(request)": [book]}}`, "shop ENTRY user 42", config.DefaultMaxWait + time.Minute, false},
		{"anonymous: {allow: {shop: [decide, book]}}", "shop ENTRY user 42", config.DefaultMaxWait + time.Minute, true},
	} {
		p := open(t, tt.access)
		c := p.connect(t)
		for i := range 62 {
			c.do("SASH." + []string{"BOOK", "RESERVE"}[i%2] + " " + tt.subject + " WITHIN 3600")
		}
		p.pass(tt.after)
		if got := c.do("SASH.PEEK " + tt.subject); strings.HasPrefix(got, "[allowed 0 ") != tt.held {
			t.Errorf("%s with %q, %v later: %s", tt.subject, tt.access, tt.after, got)
		}
	}
}

var sealed = regexp.MustCompile(` token (\S+)\]$`)

func tokenOf(t *testing.T, reply string) string {
	t.Helper()
	found := sealed.FindStringSubmatch(reply)
	if found == nil {
		t.Fatalf("no token in %s", reply)
	}
	return found[1]
}

func TestReservationsAreSettled(t *testing.T) {
	p := open(t, everything)
	c, other := p.connect(t), p.connect(t)
	first := tokenOf(t, c.do("SASH.RESERVE shop ENTRY user 42 COST 2"))
	c.begins("SASH.PEEK shop ENTRY user 42", "[allowed 1 remaining 1 ")
	other.is("SASH.SETTLE "+first+" 1", "OK")
	c.begins("SASH.PEEK shop ENTRY user 42", "[allowed 1 remaining 2 ")
	other.is("SASH.SETTLE "+first+" 0", "OK") // the first one counts
	c.begins("SASH.PEEK shop ENTRY user 42", "[allowed 1 remaining 2 ")
	second := tokenOf(t, c.do("SASH.RESERVE shop ENTRY user 42 COST 2"))
	if got := c.do("SASH.RESERVE shop ENTRY user 42"); !strings.HasPrefix(got, "[allowed 0 ") || strings.Contains(got, "token") {
		t.Error(got)
	}
	c.send(encode("SASH.SETTLE", second, "0") + encode("SASH.PEEK", "shop", "ENTRY", "user", "42")) // in order
	c.gets("OK", "[allowed 1 remaining 2 ")
	third := tokenOf(t, c.do("SASH.RESERVE key LIMIT 25/5s COST 20"))
	other.send(encode("SASH.SETTLE", second, "0") + encode("SASH.SETTLE", third, "5")) // beside each other
	other.gets("OK", "OK")
	c.begins("SASH.PEEK key LIMIT 25/5s", "[allowed 1 remaining 20 ")
	c.begins("SASH.SETTLE "+third+" -1", "-SASHCOST ")
	c.begins("SASH.SETTLE "+third+"x 1", "-SASHTOKEN the token is not valid here")
	c.begins("SASH.SETTLE "+third, "-ERR wrong number of arguments for 'sash.settle' command")
	c.begins("SASH.SETTLE "+third+" many", "-ERR syntax error: \"many\" is no number of units")
	c.begins("SASH.RESERVE shop ENTRY counted 42", "-SASHRULE a rule with count_refused takes no reservations")
	p.pass(10 * time.Minute)
	c.begins("SASH.SETTLE "+first+" 1", "-SASHTOKEN the reservation has expired")
}

func TestResetForgetsASubject(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	c.begins("SASH.ALLOW shop ENTRY user 42 COST 3", "[allowed 1 remaining 0 ")
	c.is("SASH.RESET shop ENTRY user 42", "OK")
	c.begins("SASH.ALLOW shop ENTRY user 42", "[allowed 1 remaining 2 ")
	c.is("CL.THROTTLE key 0 1 60", "[0 1 0 -1 60]")
	c.is("SASH.RESET key LIMIT 1/60s", "OK")
	c.is("CL.THROTTLE key 0 1 60", "[0 1 0 -1 60]")
	c.begins("SASH.RESET shop ENTRY free 42", "-SASHRULE nothing limits these entries")
	c.begins("SASH.RESET shop ENTRY user 42 COST 1", "-ERR syntax error: SASH.RESET forgets all charges")
	strict := open(t, "anonymous: {allow: [decide, override]}\n").connect(t)
	strict.begins("SASH.RESET shop ENTRY user 42", "-NOAUTH Authentication required. not authenticated: callers without a token may not give units back")
}

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
	if got := p.invalid(); got != 13 {
		t.Errorf("%d wrong commands were counted, want 13", got)
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
