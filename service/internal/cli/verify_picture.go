//go:build !sashserver

package cli

import (
	"fmt"
	"html"
	"os"
	"strings"
	"time"

	"example.com/sash/service/internal/verify"
)

// The picture of a window, in pixels: a column of it is a pixel wide.
const (
	pictureColumns = 840
	pictureLeft    = 20
	pictureTop     = 60
	pictureTall    = 180 // of the units in use
)

const pictureStyle = `text{font:13px system-ui,sans-serif;fill:#1c2127}.soft{fill:#57606a;font-size:12px}.ground{fill:#fff}.band{fill:#fdf1cf}
.used{fill:#3b8ec4;fill-opacity:.35;stroke:#3b8ec4}.limit{stroke:#b3261e;stroke-dasharray:5 4}.admitted{stroke:#3b8ec4}.refused{stroke:#b84a00}.base{stroke:#dde1e6}
@media(prefers-color-scheme:dark){text{fill:#e4e9ee}.soft{fill:#9da8b4}.ground{fill:#171c22}.band{fill:#2c2816}.limit{stroke:#ff8078}.base{stroke:#2a323b}.refused{stroke:#ff9457}}`

// writePicture writes the window of a fault that exceeds its limit most as SVG: the units in the trailing window at each
// instant, the limit, and the calls, from two windows before its end to one behind it.
func writePicture(name string, r *verify.Recording, f *verify.RecordedFault) error {
	window := f.Over.Limit.Window
	from := f.Over.Ends.Add(-2 * window)
	used, admitted, refused := inColumns(r.Around(f.Key, from.Add(-window), from.Add(3*window)), from, window)
	return os.WriteFile(name, []byte(picture(f, used, admitted, refused)), 0o644) //nolint:gosec // it is for others to see
}

// inColumns returns, for each column of three windows from an instant on, the most units in the trailing window, and whether
// calls were admitted and refused. The calls are in time order, and those of the window before are among them.
func inColumns(calls []verify.Moment, from time.Time, window time.Duration) (used []int64, admitted, refused []bool) {
	used, admitted, refused = make([]int64, pictureColumns), make([]bool, pictureColumns), make([]bool, pictureColumns)
	column := func(at time.Time) int {
		if at.Before(from) {
			return -1
		}
		return int(at.Sub(from).Microseconds() * pictureColumns / max(1, (3*window).Microseconds()))
	}
	var units int64
	left, filled := 0, 0 // calls that have left the window, and columns whose last units are known
	fill := func(end int) {
		for ; filled < min(end, pictureColumns); filled++ {
			used[filled] = max(used[filled], units)
		}
	}
	see := func(i int) { // units that hold somewhere in a column
		if fill(i); i >= 0 && i < pictureColumns {
			used[i] = max(used[i], units)
		}
	}
	leave := func(until time.Time) {
		for ; left < len(calls) && !calls[left].At.Add(window).After(until); left++ {
			if calls[left].Admitted {
				see(column(calls[left].At.Add(window)))
				units -= calls[left].Units
			}
		}
	}
	for _, c := range calls {
		i := column(c.At)
		inside := i >= 0 && i < pictureColumns
		if !c.Admitted {
			if inside {
				refused[i] = true
			}
			continue
		}
		leave(c.At)
		fill(i)
		units += c.Units
		see(i)
		if inside {
			admitted[i] = true
		}
	}
	leave(from.Add(3 * window))
	fill(pictureColumns)
	return used, admitted, refused
}

func picture(f *verify.RecordedFault, used []int64, admitted, refused []bool) string {
	limit, most := f.Over.Limit, f.Over.Limit.Units
	for _, n := range used {
		most = max(most, n)
	}
	base := pictureTop + pictureTall
	y := func(n int64) float64 { return float64(base) - float64(pictureTall)*float64(n)/float64(most) }
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	said := fmt.Sprintf("%s was admitted %s in %s; the limit is %s", html.EscapeString(printable(f.Key)), units(f.Over.Units), windowText(limit), limit)
	say(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"><title>%s</title><style>%s</style>`, pictureColumns+2*pictureLeft, base+70, said, pictureStyle)
	say(`<rect class="ground" width="100%%" height="100%%"/><text x="%d" y="24">%s</text>`, pictureLeft, said)
	third := pictureColumns / 3
	say(`<rect class="band" x="%d" y="%d" width="%d" height="%d"/>`, pictureLeft+third, pictureTop, third, pictureTall+30)
	say(`<text class="soft" x="%d" y="%d" text-anchor="middle">the window that ends at %s</text>`, pictureLeft+third*3/2, pictureTop-10, instantText(f.Over.Ends))
	path := fmt.Sprintf("M%d %d", pictureLeft, base)
	for i, n := range used {
		path += fmt.Sprintf("V%.1fH%d", y(n), pictureLeft+i+1)
	}
	say(`<path class="used" d="%sV%dZ"/>`, path, base)
	say(`<path class="limit" d="M%d %.1fh%d"/><text class="soft" x="%d" y="%.1f">limit %d</text>`, pictureLeft, y(limit.Units), pictureColumns, pictureLeft+4, y(limit.Units)-4, limit.Units)
	for _, lane := range []struct {
		name string
		at   []bool
		y    int
	}{{"admitted", admitted, base + 4}, {"refused", refused, base + 18}} {
		marks := ""
		for i, there := range lane.at {
			if there {
				marks += fmt.Sprintf("M%d %dv10", pictureLeft+i, lane.y)
			}
		}
		say(`<path class="%s" d="%s"/>`, lane.name, marks)
	}
	say(`<path class="base" d="M%d %dh%d"/>`, pictureLeft, base, pictureColumns)
	say(`<text class="soft" x="%d" y="%d">units in the trailing %s; below it the calls, admitted and refused; from %s to %s</text></svg>`,
		pictureLeft, base+52, windowText(limit), instantText(f.Over.Ends.Add(-2*limit.Window)), instantText(f.Over.Ends.Add(limit.Window)))
	return b.String()
}
