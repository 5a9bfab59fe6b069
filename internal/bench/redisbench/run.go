package redisbench

import (
	_ "embed"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

//go:embed page.md
var page string

// Run measures everything and adds it to the report.
func Run(to *report.Report) error {
	s, err := server.Start()
	if err != nil {
		return err
	}
	defer s.Stop()
	to.Redis = s.Version
	r := &run{Report: to, bench: bench{s}, lineup: contenders()}
	data := map[string]any{"SlowRounds": r.slowRounds()}
	for _, part := range []struct {
		name    string
		measure func() (report.Table, error)
	}{
		{"OneWindow", r.oneWindow}, {"Leanest", r.leanest}, {"TwoWindows", r.twoWindows}, {"Entries", r.entries}, {"Slowest", r.slow}, {"Memory", r.bytes},
	} {
		if data[part.name], err = part.measure(); err != nil {
			return err
		}
	}
	return r.Add(page, data)
}

type run struct {
	*report.Report
	bench
	lineup
}

// oneWindow measures every algorithm under every load.
func (r *run) oneWindow() (report.Table, error) {
	all := append([]contender{r.empty, r.hand, r.compact}, r.others...)
	exact := all[:5] // a call leaves their windows as another comes
	head := []string{"µs of server time a decision"}
	for _, c := range all {
		head = append(head, c.name)
	}
	table := report.NewTable(head...)
	for _, m := range []struct {
		load       load
		calls      int
		contenders []contender
		want       float64
	}{
		{withRoom(1), r.Calls, all, 0.75},
		{fresh(r.Calls), r.Calls, all, 0.75},
		{leaving(300, 1), r.Calls, exact, 0.75},
		{refused(1), r.Calls, all, 0},
		{withRoom(100), min(r.Calls, 900), all, 0.15},
		{leaving(300, 100), r.Calls / 4, exact, 0.15},
	} {
		name := fmt.Sprintf("cost %d, %s", m.load.cost, m.load.name)
		r.Say("%s", name)
		cells, err := r.rounds(r.Rounds, m.calls, []load{m.load}, m.contenders...)
		if err != nil {
			return table, err
		}
		row, hand := []any{name}, cells[0][1].time
		for i, cell := range cells[0] {
			text := cell.time.String()
			if i > 1 {
				text += fmt.Sprintf(", × %.2f", report.Ratio(cell.time, hand))
			}
			if share := cell.share.Median(); m.load.spans != nil && i > 0 && share < 99.5 {
				text += fmt.Sprintf(", %.0f %% admitted", share)
			}
			row = append(row, text)
		}
		for range len(all) - len(m.contenders) {
			row = append(row, "-")
		}
		table.Row(row...)
		if m.want > 0 {
			r.AtMost(m.want, report.Ratio(cells[0][2].time, hand), "compact log : sorted set by hand, "+name)
		}
	}
	return table, nil
}

// twoWindows compares one call for both windows of a subject with one call for each.
func (r *run) twoWindows() (report.Table, error) {
	table := report.NewTable("µs of server time a decision", r.hand.name+", two calls", r.compact.name+", one call", "ratio", "sorted-set log, one call")
	for _, l := range []load{twoLeaving(300, 3000), twoWithRoom()} {
		r.Say("%s", l.name)
		cells, err := r.rounds(r.Rounds, r.Calls, []load{l}, r.hand, r.compact, r.others[0])
		if err != nil {
			return table, err
		}
		hand, compact, set := cells[0][0].time, cells[0][1].time, cells[0][2].time
		ratio := report.Ratio(compact, hand)
		table.Row(l.name, hand, compact, fmt.Sprintf("%.2f", ratio), set)
		r.AtMost(0.6, ratio, "compact log : two sorted-set calls, "+l.name)
	}
	return table, nil
}

// sizes are the calls in the window.
var sizes = []int{10, 100, 1000, 10_000, 100_000}

// entries measures the same call as the window holds more.
func (r *run) entries() (report.Table, error) {
	table := report.NewTable("calls in the window", r.compact.name+", µs", "to 10", r.hand.name+", µs", "to 10", "ratio")
	loads := make([]load, len(sizes))
	for i, n := range sizes {
		loads[i] = holding(n)
	}
	r.Say("10 to 100,000 calls in the window")
	cells, err := r.rounds(r.Rounds, r.Calls, loads, r.compact, r.hand) // sizes alternate too, since their ratios count
	if err != nil {
		return table, err
	}
	most := 0.0
	ours, theirs := report.Curve{Name: r.compact.name, Ours: true}, report.Curve{Name: r.hand.name}
	for i, n := range sizes {
		compact, hand := cells[i][0].time, cells[i][1].time
		ours.Add(n, compact)
		theirs.Add(n, hand)
		ratio := report.Ratio(compact, cells[0][0].time)
		most = max(most, ratio)
		table.Row(n, compact, fmt.Sprintf("%.2f", ratio),
			hand, fmt.Sprintf("%.2f", report.Ratio(hand, cells[0][1].time)), fmt.Sprintf("%.2f", report.Ratio(compact, hand)))
	}
	r.AtMost(1.3, most, "compact log, dearest of 10 to 100,000 calls in the window : 10 calls")
	return table, r.Plot("cost-against-entries.svg", report.Plot{Title: "server time of a decision against calls in the window",
		X: "calls in the window", Y: "µs of server time", Curves: []report.Curve{ours, theirs}})
}

func (r *run) slowRounds() int { return min(3, r.Rounds) }

// slow measures the slowest single call.
func (r *run) slow() (report.Table, error) {
	table := report.NewTable("µs of the slowest single call", r.compact.name, r.hand.name)
	hour := sash.Every(sash.MaxEntries-1, time.Hour)
	for _, m := range []struct {
		name    string
		measure func(contender) (float64, error)
	}{
		{"while filling from 0 to 100,000", r.slowestWhileFilling},
		{"first after a burst of 100,000 left, one window", func(c contender) (float64, error) { return r.afterBurst(c) }},
		{"first after it left the shorter of two windows", func(c contender) (float64, error) { return r.afterBurst(c, hour) }},
	} {
		r.Say("slowest call %s", m.name)
		var figures [2]report.Figure
		for range r.slowRounds() {
			for i, c := range []contender{r.compact, r.hand} {
				micros, err := m.measure(c)
				if err != nil {
					return table, err
				}
				figures[i].Add(micros)
			}
		}
		table.Row(m.name, figures[0], figures[1])
		r.AtMost(1000, slices.Min(figures[0]), "compact log, µs of the slowest call "+m.name+" (lowest round)")
	}
	return table, nil
}

// bytes measures memory.
func (r *run) bytes() (report.Table, error) {
	table := report.NewTable("bytes an admitted call", r.compact.name+", limit = calls", r.compact.name+", limit 100,000", r.hand.name, "sorted set : compact")
	for _, n := range sizes {
		r.Say("memory of %d calls", n)
		var bytes [3]float64
		for i, m := range []struct {
			contender contender
			units     int64
		}{{r.compact, int64(n)}, {r.compact, sash.MaxEntries}, {r.hand, sash.MaxEntries}} {
			var err error
			if bytes[i], err = r.memory(m.contender, n, m.units); err != nil {
				return table, err
			}
		}
		tight, wide, hand := bytes[0], bytes[1], bytes[2]
		table.Row(n, fmt.Sprintf("%.1f", tight), fmt.Sprintf("%.1f", wide), fmt.Sprintf("%.1f", hand), fmt.Sprintf("%.1f", hand/tight))
		if n == 1000 || n == 100_000 {
			r.AtMost(16, tight, fmt.Sprintf("compact log, bytes an admitted call at %d calls, limit equal to the calls", n))
			r.AtMost(16, wide, fmt.Sprintf("compact log, bytes an admitted call at %d calls, limit 100,000", n))
		}
	}
	return table, nil
}
