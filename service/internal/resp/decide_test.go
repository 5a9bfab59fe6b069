package resp

import (
	"testing"
	"time"
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

// A command with an ID is charged once, as on the other ports.
func TestAnIDIsChargedOnce(t *testing.T) {
	p := open(t, "")
	c := p.connect(t)
	for range 3 {
		c.begins("SASH.ALLOW shop ENTRY user 42 ID order-1", "[allowed 1 remaining 2 ")
	}
	c.begins("SASH.ALLOW shop ENTRY user 42 ID order-2", "[allowed 1 remaining 1 ")
}

func TestWrongArguments(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	for command, want := range map[string]string{
		"SASH.ALLOW":                                  "-ERR wrong number of arguments for 'sash.allow' command",
		"SASH.ALLOW shop":                             "-ERR wrong number of arguments for 'sash.allow' command",
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
		"SASH.ALLOW key LIMIT 2/5s LIMIT":             "-ERR syntax error: LIMIT needs 1 behind it",
		"SASH.ALLOW nowhere ENTRY user 42":            "-SASHRULE ",
		"SASH.ALLOW shop ENTRY user 42 COST 0":        "-SASHCOST ",
		"SASH.ALLOW shop ENTRY user 42 COST -1":       "-SASHCOST ",
		"SASH.ALLOW shop ENTRY user 42 COST 4":        "-SASHCOST ",
		"SASH.ALLOW key LIMIT 25/5s COST 26":          "-SASHCOST ",
		"SASH.ALLOW shop ENTRY user 42 \xff":          "-ERR an argument is not UTF-8",
	} {
		c.begins(command, want)
	}
	for _, args := range [][]string{{"shop", "ENTRY", "user", ""}, {"shop", "ENTRY", "", "42"}, {"", "ENTRY", "user", "42"}, {" ", "LIMIT", "25/5s"}} {
		c.send(encode(append([]string{"SASH.ALLOW"}, args...)...))
		if got := c.read(); got[:4] != "-ERR" {
			t.Errorf("%q: %s", args, got)
		}
	}
	c.begins("SASH.ALLOW shop ENTRY user 42", "[allowed 1 remaining 2 ") // nothing of it was charged
}
