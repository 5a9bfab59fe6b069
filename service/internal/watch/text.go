package watch

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"example.com/sash/service/internal/stats"
)

// Text is a state for a terminal of a width and a height; 0 is without bounds. Without color it is plain text.
func Text(s *State, width, height int, color bool) string {
	p := &page{width: width, color: color, most: max(3, (height-15)/3)}
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

// A page is lines as they are put together.
type page struct {
	width int
	color bool
	most  int // lines of a list
	lines []string
}

func (p *page) say(text string) {
	if p.width > 0 {
		text = ansi.Truncate(text, p.width, "…")
	}
	p.lines = append(p.lines, text)
}

// tint colors a text, with the terminal's own colors; 0 is only faint.
func (p *page) tint(text string, color int) string {
	switch style := lipgloss.NewStyle(); {
	case !p.color:
		return text
	case color == 0:
		return style.Faint(true).Render(text)
	default:
		return style.Foreground(lipgloss.ANSIColor(color)).Render(text)
	}
}

func (p *page) title(text, note string) {
	if p.color {
		text = lipgloss.NewStyle().Bold(true).Render(text)
	}
	p.say("")
	p.say(text + "  " + p.tint(note, 0))
}

// Colors of a terminal.
const (
	red    = 1
	green  = 2
	yellow = 3
)

func (p *page) head(s *State) {
	store := fmt.Sprintf("store %s", s.Store.Store)
	if s.Store.Status != "ok" {
		store = p.tint(fmt.Sprintf("store %s (%s)", s.Store.Store, s.Store.Cause), red)
	} else {
		store = p.tint(store, green)
	}
	if s.Store.For != nil {
		store += " for " + time.Duration(*s.Store.For).Round(time.Second).String()
	}
	p.say(fmt.Sprintf("sash  %s  %s, %d in flight, instances %s, overrides %d, bans %d",
		s.At.Local().Format("15:04:05"), store, s.Store.InFlight, known(s.Store.Instances), s.Store.Overrides, s.Store.Bans))
	if l := s.Store.Local; l.Backlog+l.Lost+l.Doubtful > 0 {
		p.say(p.tint(fmt.Sprintf("local: %d subjects to tell Redis of, %d units never told, %d perhaps charged already", l.Backlog, l.Lost, l.Doubtful), yellow))
	}
	r, n := s.Requests.Rate, s.Requests.Count
	p.say("")
	rows := [][]string{
		{"", "allowed", "refused", "banned", "would be refused", "no decision", "wrong"},
		{"requests /s", per(r.Allowed), per(r.Refused), per(r.Banned), per(r.Shadow), per(r.Failed), per(r.Invalid)},
		{"in all", whole(n.Allowed), whole(n.Refused), whole(n.Banned), whole(n.Shadow), whole(n.Failed), whole(n.Invalid)},
	}
	p.grid(rows)
}

func (p *page) rules(s *State) {
	p.title("Rules", "mean of the last 10 s, and counts since "+s.Since.Local().Format("15:04:05"))
	rows := [][]string{{"rule", "asked/s", "refused/s", "share", "allowed", "refused", "would be", "banned", "errors"}}
	for _, l := range s.Rules[:min(len(s.Rules), p.most)] {
		asked, refused := l.Rate.Sum(), l.Rate.Refused+l.Rate.Banned
		share := "-"
		if asked > 0 {
			share = fmt.Sprintf("%.1f%%", 100*refused/asked)
		}
		rows = append(rows, []string{
			clean(l.Rule), per(asked), per(refused), share,
			whole(l.Count.Allowed), whole(l.Count.Refused), whole(l.Count.Shadow), whole(l.Count.Banned), whole(l.Count.Failed),
		})
	}
	p.grid(rows)
}

func (p *page) subjects(s *State) {
	if s.Top == nil {
		p.title("Subjects", "hidden: give the admin's token with --token-file or SASH_ADMIN_TOKEN")
		return
	}
	since := "since " + s.Top.Since.Local().Format("15:04:05")
	p.title("Hottest subjects", "units asked for, "+since)
	p.grid(p.list(s.Top.Units, "units", func(t *stats.Subject) string { return t.Last }))
	p.title("Most refused", "requests, "+since)
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

// grid says rows in columns, the first row faint. All but the first column are to the right, as numbers are, but for
// texts that begin with a space.
func (p *page) grid(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], ansi.StringWidth(text))
		}
	}
	if rest := p.width - sum(widths[1:]) - 2*len(widths); p.width > 0 && widths[0] > max(12, rest) {
		widths[0] = max(12, rest)
	}
	for i, row := range rows {
		var b strings.Builder
		for j, text := range row {
			text = ansi.Truncate(text, widths[j], "…")
			space := strings.Repeat(" ", widths[j]-ansi.StringWidth(text))
			if j > 0 && !strings.HasPrefix(text, " ") {
				text = space + text
			} else {
				text += space
			}
			if j > 0 {
				b.WriteString("  ")
			}
			b.WriteString(text)
		}
		line := strings.TrimRight(b.String(), " ")
		if i == 0 {
			line = p.tint(line, 0)
		}
		p.say(line)
	}
}

func sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}

// per is a rate, with a digit where it tells something.
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

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func known(n int) string { return cmp.Or(strings.TrimPrefix(strconv.Itoa(n), "0"), "not known") }

// clean keeps what requests say from commanding the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
