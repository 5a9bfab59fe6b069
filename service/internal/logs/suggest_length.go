package logs

import (
	"fmt"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
)

// knownWindows is how often a log must cover a window. The next window is then busier than all of them with a chance of
// at most 1 in 11.
const knownWindows = 10

// windowPair is the lengths of the two windows.
type windowPair struct {
	burst, sustained           time.Duration
	fixedBurst, fixedSustained bool // given by a flag
}

// windowLadder is the lengths that are tried in place of a default that the log does not know, longest first.
var windowLadder = []time.Duration{
	time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute, 2 * time.Minute, time.Minute,
	30 * time.Second, 20 * time.Second, 10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second,
}

// choose replaces defaults that the log is too short to know, and says so in the report. The error says what the log does
// know.
func (p *windowPair) choose(c *replay.Coverage, report *suggestReport) error {
	asked := p.sustained
	switch known := longest(c, p.sustained); {
	case c.Windows(p.sustained) >= knownWindows:
	case p.fixedSustained || known == 0:
		return unknown("--sustained", p.sustained, c, known)
	default:
		report.WindowNote = fmt.Sprintf("%s. So the long window is %s.", covers(c, p.sustained), windowName(known))
		p.sustained = known
	}
	if p.burst < p.sustained && c.Windows(p.burst) >= knownWindows {
		return nil
	}
	known := longest(c, min(p.burst, p.sustained/2))
	switch {
	case p.fixedBurst && p.burst >= p.sustained:
		return fmt.Errorf("--burst %s must be shorter than the long window, and the log knows none longer than %s: %s",
			windowName(p.burst), windowName(p.sustained), covers(c, asked))
	case p.fixedBurst || known == 0:
		return unknown("--burst", p.burst, c, known)
	}
	report.WindowNote += fmt.Sprintf(" The short one is %s.", windowName(known))
	p.burst = known
	return nil
}

// longest returns the longest window of the ladder up to a length that the log knows, or 0.
func longest(c *replay.Coverage, most time.Duration) time.Duration {
	for _, w := range windowLadder {
		if w <= most && c.Windows(w) >= knownWindows {
			return w
		}
	}
	return 0
}

func covers(c *replay.Coverage, w time.Duration) string {
	text := fmt.Sprintf("The log covers a window of %s %s, and %d times are needed", windowName(w), count(int64(c.Windows(w)), "time"), knownWindows)
	if c.Sampled {
		text += fmt.Sprintf(" (it looks sampled: its requests lie in %d of %d minutes)", c.Busy, c.Minutes)
	}
	return text
}

func unknown(flag string, w time.Duration, c *replay.Coverage, known time.Duration) error {
	if known == 0 {
		return fmt.Errorf("%s %s: %s, so a busier one is likely to come. It is too short for a proposal: use a longer log", flag, windowName(w), lower(covers(c, w)))
	}
	return fmt.Errorf("%s %s: %s, so a busier one is likely to come. Use %s %s, the longest that it knows, or a longer log",
		flag, windowName(w), lower(covers(c, w)), flag, windowName(known))
}

// lower begins a sentence in lower case.
func lower(s string) string { return "t" + s[1:] }

// windowName writes a length as limits do, such as 5m.
func windowName(w time.Duration) string {
	_, name, _ := strings.Cut(sash.Every(1, w).String(), "/")
	return name
}
