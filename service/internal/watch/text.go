package watch

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
)

// Text renders an event for a terminal of a width and a height; 0 is unbounded. Without color it is plain text.
func Text(s *wire.Event, width, height int, color bool) string {
	p := &page{width: width, color: color, most: max(3, (height-18)/3)}
	if height == 0 {
		p.most = math.MaxInt
	}
	p.head(s)
	p.rules(s)
	p.subjects(s)
	lines := p.lines
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	return strings.Join(lines, "\n")
}

func (p *page) head(s *wire.Event) {
	store := "store " + s.Store.Store
	color := green
	if s.Store.Status != "ok" {
		color = red
	}
	store = p.tint(store, color)
	if s.Store.For != nil {
		store += " for " + time.Duration(*s.Store.For).Round(time.Second).String()
	}
	p.add(fmt.Sprintf("sash  %s  %s, %d in flight, instances %s, overrides %d, bans %d",
		clock(s.At), store, s.Store.InFlight, known(s.Store.Instances), s.Store.Overrides, s.Store.Bans))
	p.outage(&s.Store)
	if l := s.Store.Local; l.Backlog+l.Lost+l.Doubtful > 0 {
		p.add(p.tint(fmt.Sprintf("local: %d subjects waiting to be written to Redis, %d units lost, %d possibly charged by Redis", l.Backlog, l.Lost, l.Doubtful), yellow))
	}
	r, n := s.Requests.Rate, s.Requests.Count
	p.add("")
	rows := [][]string{
		{"", "allowed", "uncounted", "refused", "banned", "would be refused", "no decision", "invalid"},
		{"requests/s", per(r.Allowed), per(r.Uncounted), per(r.Refused), per(r.Banned), per(r.Shadow), per(r.Failed), per(r.Invalid)},
		{"total", whole(n.Allowed), whole(n.Uncounted), whole(n.Refused), whole(n.Banned), whole(n.Shadow), whole(n.Failed), whole(n.Invalid)},
	}
	p.grid(rows)
}

// outage says why the store does not decide, since when, and what went ahead meanwhile that nothing counts.
func (p *page) outage(s *wire.Store) {
	switch let := whole(s.Uncounted) + " requests went ahead uncounted"; {
	case s.Status != "ok":
		where, why, since := "Redis at "+text(s.Address), text(s.Reason), ""
		if s.Store == "memory" {
			where = "the store in memory"
		}
		if s.Cause != nil {
			why += " (" + *s.Cause + ")"
		}
		if s.Since != nil {
			since = " since " + clock(*s.Since)
		}
		p.add(p.tint(clean(where+" "+why)+since+": on_unavailable of each rule answers", red))
		if s.Error != nil {
			p.add(p.tint(clean(*s.Error), 0))
		}
		p.add(p.tint(let+" since then", red))
	case s.Uncounted > 0 && s.Since != nil:
		p.add(p.tint("Redis is back since "+clock(*s.Since)+": "+let+" before", yellow))
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (p *page) rules(s *wire.Event) {
	p.title("Rules", "rates over the last 10 s, totals since "+clock(s.Since))
	rows := [][]string{{"rule", "calls/s", "refused %", "uncounted %", "no decision %", "waiting", "allowed", "uncounted", "refused", "would refuse", "banned", "no decision"}}
	for _, l := range s.Rules[:min(len(s.Rules), p.most)] {
		n := &l.Count
		rows = append(rows, []string{
			clean(l.Rule), per(l.Rate.Sum()), percent(l.Share.Refused), percent(l.Share.Uncounted), percent(l.Share.Failed), whole(int64(l.Queue.Waiting)),
			whole(n.Allowed), whole(n.Uncounted), whole(n.Refused), whole(n.Shadow), whole(n.Banned), whole(n.Failed),
		})
	}
	p.grid(rows)
}

// percent formats a share; nil is none.
func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100**share)
}

func (p *page) subjects(s *wire.Event) {
	if s.Top == nil {
		p.title("Subjects", "hidden: pass the admin token with --token-file or SASH_ADMIN_TOKEN")
		return
	}
	since := "since " + clock(s.Top.Since)
	p.title("Hottest subjects", "units requested "+since)
	p.grid(p.list(s.Top.Units, "units", func(t *stats.Subject) string { return t.Last }))
	p.title("Most refused", "refused requests "+since)
	p.grid(p.list(s.Top.Refused, "requests", func(t *stats.Subject) string {
		if t.RefusedBy != nil {
			return *t.RefusedBy
		}
		return t.Last
	}))
}

func (p *page) list(all []stats.Subject, what string, last func(*stats.Subject) string) [][]string {
	rows := [][]string{{"subject", what, "  last"}}
	for i := range all[:min(len(all), p.most)] {
		rows = append(rows, []string{clean(all[i].Subject), whole(all[i].Count), "  " + clean(last(&all[i]))})
	}
	return rows
}

// per formats a rate, with one decimal where it is significant.
func per(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.05:
		return "<0.1"
	case n < 9.95:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// clock is the time of day.
func clock(i wire.Instant) string { return time.Time(i).Local().Format(time.TimeOnly) }

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func known(n int) string { return cmp.Or(strings.TrimPrefix(strconv.Itoa(n), "0"), "unknown") }

// clean replaces unprintable characters, so that values of requests cannot control the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
