package resp

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

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

var sealed = regexp.MustCompile(` token (\S+)\]$`)

// tokenOf returns the token at the end of a reply.
func tokenOf(t *testing.T, reply string) string {
	t.Helper()
	found := sealed.FindStringSubmatch(reply)
	if found == nil {
		t.Fatalf("no token in %s", reply)
	}
	return found[1]
}

// A reservation is settled once, over any connection.
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
	if got := c.read(); got != "OK" {
		t.Error(got)
	}
	if got := c.read(); !strings.HasPrefix(got, "[allowed 1 remaining 2 ") {
		t.Error(got)
	}
	third := tokenOf(t, c.do("SASH.RESERVE key LIMIT 25/5s COST 20"))
	c.is("SASH.SETTLE "+third+" 5", "OK")
	c.begins("SASH.PEEK key LIMIT 25/5s", "[allowed 1 remaining 20 ")
	c.begins("SASH.SETTLE "+third+" -1", "-SASHCOST ")
	c.begins("SASH.SETTLE "+third+"x 1", "-SASHTOKEN the token is not valid here")
	c.begins("SASH.SETTLE "+third, "-ERR wrong number of arguments for 'sash.settle' command")
	c.begins("SASH.SETTLE "+third+" many", "-ERR syntax error: give the token and the units that were used")
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
