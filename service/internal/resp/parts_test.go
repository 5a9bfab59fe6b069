package resp

import (
	"strings"
	"testing"
	"time"
)

// With AND, commands on several subjects charge all or none; with OR, the one with the most room. The reply says which one.
func TestCommandsOnSeveralSubjects(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	is := func(command, begins, part string) {
		t.Helper()
		if got := c.do(command); !strings.HasPrefix(got, begins) || !strings.Contains(got, " source store part "+part) {
			t.Errorf("%s\n got %s\nwant %s… part %s", command, got, begins, part)
		}
	}
	is("SASH.ALLOW shop ENTRY user 1 AND shop ENTRY user 2 COST 2", "[allowed 1 remaining 1 ", "1")
	is("SASH.ALLOW shop COST 1 ENTRY user 1 and shop ENTRY user 2 COST 2", "[allowed 0 remaining 1 retry_after 60 ", "1")
	is("SASH.PEEK shop ENTRY user 1 AND shop ENTRY user 2", "[allowed 1 remaining 1 ", "1")
	is("SASH.ALLOW shop ENTRY user 1 OR shop ENTRY user 2 OR shop ENTRY user AND", "[allowed 1 remaining 2 ", "2")
	is("SASH.ALLOW key LIMIT 2/1m AND other LIMIT 1/1h", "[allowed 1 remaining 0 ", "1")
	is("SASH.ALLOW key LIMIT 2/1m OR other LIMIT 1/1h", "[allowed 1 remaining 0 ", "0")
	is("SASH.ALLOW key LIMIT 2/1m COST 3 OR big LIMIT 4/1h COST 3", "[allowed 1 remaining 1 ", "1")
	c.begins("SASH.PEEK shop ENTRY user 1", "[allowed 1 remaining 2 ")
	c.begins("SASH.PEEK shop ENTRY user 2", "[allowed 1 remaining 1 ")
	for command, want := range map[string]string{
		"SASH.ALLOW shop ENTRY user 1 AND shop ENTRY user 2 OR shop ENTRY user 3":    "-ERR syntax error: give AND between the subjects",
		"SASH.ALLOW shop ENTRY user 1 AND":                                           "-ERR syntax error: AND needs 1 behind it",
		"SASH.ALLOW shop ENTRY user 1 AND shop":                                      "-ERR syntax error: give ENTRY key value",
		"SASH.ALLOW shop ENTRY user 1 AND other ENTRY user 2":                        "-ERR syntax error: the subjects of a command are of one domain",
		"SASH.ALLOW shop ENTRY user 1 AND key LIMIT 1/1m":                            "-ERR syntax error: the subjects of a command are of one domain",
		"SASH.ALLOW shop ENTRY user 1 ID a AND shop ENTRY user 2":                    "-SASHRULE a request has 1 to 4 parts",
		"SASH.ALLOW shop ENTRY user 1" + strings.Repeat(" AND shop ENTRY user 1", 4): "-SASHRULE a request has 1 to 4 parts",
		"SASH.BOOK shop ENTRY user 1 WITHIN 1 AND shop ENTRY user 2":                 "-ERR syntax error: 'AND' is no option here",
		"SASH.RESET shop ENTRY user 1 AND shop ENTRY user 2":                         "-ERR syntax error: 'AND' is no option here",
		"SASH.PEEK shop ENTRY user 1 AND shop ENTRY user 1 COST 2":                   "-ERR parts[1]: the subject is there twice",
		"SASH.ALLOW key LIMIT 1/1m COST 2 OR other LIMIT 1/1h COST 2":                "-SASHCOST ",
		"SASH.ALLOW shop ENTRY user 1 OR shop ENTRY counted 1":                       "-SASHRULE a rule with count_refused",
	} {
		c.begins(command, want)
	}
	c.begins("SASH.PEEK shop ENTRY user 1", "[allowed 1 remaining 2 ") // nothing of it was charged
	strict := open(t, "anonymous: {allow: {shop: [decide]}}\n").connect(t)
	strict.begins("SASH.ALLOW key LIMIT 2/1m AND other LIMIT 1/1h", "-NOAUTH ")
	strict.begins("SASH.ALLOW other ENTRY user 1 AND other ENTRY user 2", "-NOAUTH ")
	long := open(t, "anonymous: {allow: [decide, override]}\n").connect(t)
	long.begins("SASH.ALLOW key LIMIT 2/1m AND other LIMIT 1/48h", "-NOAUTH ") // the right of the second one, too
}

// A token settles all subjects of a reservation. A token of slots in flight can be extended and given back.
func TestReservationsOfSeveralSubjects(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	both := tokenOf(t, c.do("SASH.RESERVE shop ENTRY user 1 COST 3 AND shop ENTRY user 2 COST 2"))
	c.begins("SASH.SETTLE "+both+" 1", "-SASHCOST sash: invalid cost: the reservation has 2 parts")
	c.is("SASH.SETTLE "+both+" 2 1", "OK")
	c.begins("SASH.PEEK shop ENTRY user 1 AND shop ENTRY user 2 COST 2", "[allowed 1 remaining 1 ")
	c.is("SASH.SETTLE "+tokenOf(t, c.do("SASH.RESERVE shop ENTRY user 1 AND shop ENTRY user 2"))+" 0", "OK")
	c.begins("SASH.PEEK shop ENTRY user 2", "[allowed 1 remaining 2 ")
	slot := tokenOf(t, c.do("SASH.RESERVE job LIMIT 1/30s"))
	for range 3 {
		p.pass(29 * time.Second)
		c.begins("SASH.RESERVE job LIMIT 1/30s", "[allowed 0 ")
		slot = c.do("SASH.EXTEND " + slot)
	}
	c.is("SASH.SETTLE "+slot+" 0", "OK")
	c.begins("SASH.EXTEND "+slot, "-SASHTOKEN the reservation has expired")
	c.begins("SASH.EXTEND x", "-SASHTOKEN ")
	c.begins("SASH.RESERVE job LIMIT 1/30s", "[allowed 1 ")
}
