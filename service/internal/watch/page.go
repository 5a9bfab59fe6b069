package watch

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// A page collects the lines of a text.
type page struct {
	width int
	color bool
	most  int // rows of each table
	lines []string
}

// Colors of a terminal.
const (
	red    = 1
	green  = 2
	yellow = 3
)

func (p *page) add(text string) {
	if p.width > 0 {
		text = ansi.Truncate(text, p.width, "…")
	}
	p.lines = append(p.lines, text)
}

// tint colors a text in one of the terminal's own colors; 0 is faint.
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
	p.add("")
	p.add(text + "  " + p.tint(note, 0))
}

// grid adds rows in columns, the first row faint. All columns but the first are aligned to the right, except for texts
// that begin with a space.
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
		p.add(line)
	}
}

func sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}
