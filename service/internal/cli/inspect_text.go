package cli

import (
	"fmt"
	"strings"
	"time"

	"example.com/sash/redisstore"
)

// text writes an inspection for people.
func (in *inspection) text(t *text, address string, most int) {
	at := in.state.At
	t.say("%s  (%s)", printable(in.RedisKey), in.Algorithm)
	t.say("at       %s, by the clock of redis at %s", instantText(at), address)
	if in.TTL < 0 {
		t.say("expires  never: Sash did not write it")
	} else {
		t.say("expires  in %v unless it is charged again", time.Duration(in.TTL))
	}
	if in.Memory > 0 {
		t.say("memory   %s", bytesText(in.Memory))
	}
	if in.state.Log == nil {
		for _, c := range in.state.Counted {
			t.say("window   %s", countedText(c))
		}
	} else {
		in.logText(t)
	}
	for i, l := range in.Limits {
		t.say("")
		free := ""
		if l.AllFree > 0 {
			free = fmt.Sprintf("; the next unit is free in %v, all in %v", time.Duration(l.NextFree), time.Duration(l.AllFree))
		}
		t.say("%s: %d used, %d left%s", l.Name, l.Used, l.Remaining, free)
		if in.state.Log != nil {
			axis(t, in.state.Log.Entries, in.cuts[i], at)
		}
	}
	if in.state.Log == nil {
		return
	}
	entries := in.state.Log.Entries
	if len(in.Limits) == 0 && len(entries) > 0 {
		t.say("")
		t.say("The longest window of its limits so far:")
		axis(t, entries, at.Add(-in.state.Log.Keep), at)
	}
	if most = min(most, len(entries)); most == 0 {
		return
	}
	t.say("")
	t.say("Charges, the newest first:")
	for i := len(entries) - 1; i >= len(entries)-most; i-- {
		e := entries[i]
		t.say("  %s  %s  %v ago", instantText(e.At), units(e.Units), at.Sub(e.At))
	}
	if left := len(entries) - most; left > 0 {
		t.say("  and %d older ones (--entries %d lists all)", left, len(entries))
	}
}

func (in *inspection) logText(t *text) {
	l := in.state.Log
	inside, sum := 0, int64(0)
	for _, e := range l.Entries {
		if e.At.After(in.state.At.Add(-l.Keep)) {
			inside, sum = inside+1, sum+e.Units
		}
	}
	line := fmt.Sprintf("%d entries of %s within %v, the longest window of its limits so far; the largest limit had %s", inside, units(sum), l.Keep, units(l.KeepUnits))
	if old := len(l.Entries) - inside; old > 0 {
		line += fmt.Sprintf("; %d older ones will be overwritten", old)
	}
	if l.Slots > 0 {
		line += fmt.Sprintf("; room for %d", l.Slots)
	}
	t.say("log      %s", line)
}

// countedText describes what Redis keeps of one window.
func countedText(c redisstore.Counted) string {
	name := c.Window.String()
	if c.Window == 0 {
		name = "of the calendar (" + c.ID + ")"
	}
	if !c.At.IsZero() {
		return fmt.Sprintf("%s: %v owed at %s, of at most the window", name, c.Debt, instantText(c.At))
	}
	text := fmt.Sprintf("%s: %s since %s", name, units(c.Count), instantText(c.Start))
	if c.Previous > 0 {
		text += fmt.Sprintf(", and %s in the window before", units(c.Previous))
	}
	return text
}

const axisColumns = 60

// axis draws what was charged after one instant and up to another. A column is a sixtieth of the time, and its digit the
// units that were charged in it.
func axis(t *text, entries []redisstore.Entry, from, to time.Time) {
	var columns [axisColumns]int64
	span := to.Sub(from)
	for _, e := range entries {
		if !e.At.After(from) {
			continue
		}
		i := int(axisColumns * (float64(e.At.Sub(from)) / float64(span)))
		columns[min(max(i, 0), axisColumns-1)] += e.Units // an entry from before the clock went back counts as of now
	}
	var b strings.Builder
	for _, n := range columns {
		switch {
		case n == 0:
			b.WriteByte('.')
		case n < 10:
			b.WriteByte('0' + byte(n))
		default:
			b.WriteByte('+')
		}
	}
	t.say("  |%s|", &b)
	start := "-" + span.Round(time.Microsecond).String()
	t.say("   %s%*s", start, max(4, axisColumns-len(start)), "now")
	t.say("   a column is %v; its digit is the units charged in it, + ten or more", (span / axisColumns).Round(time.Microsecond))
}
