package regionbench

import (
	_ "embed"
	"fmt"
	"os"
	"time"

	"example.com/sash/internal/bench/report"
)

//go:embed page.md
var page string

// The limit and the lease of most figures: a lease is a twentieth of the window.
const (
	window  = 20 * time.Second
	longest = window / 20
	most    = 10_000
	flow    = float64(most) / 20 // units a second
)

// A bench is the figures of one run of everything.
type bench struct {
	report *report.Report
	planet *planet
	data   map[string]any
}

// Run measures everything and adds it to the report.
func Run(r *report.Report) error {
	p, err := newPlanet()
	if err != nil {
		return err
	}
	defer p.stop()
	version, err := info(p.home, "server", "redis_version")
	if err != nil {
		return err
	}
	r.Redis = "redis-server " + version
	b := &bench{report: r, planet: p, data: map[string]any{
		"Window": window, "Lease": longest, "Units": most, "Delays": delays, "Processes": perRegion,
	}}
	for _, part := range []func() error{b.busy, b.moving, b.latency, b.subjects, b.faults} {
		if err := p.flush(); err != nil {
			return err
		}
		if err := part(); err != nil {
			return err
		}
	}
	return r.Add(page, b.data)
}

// scaled shortens a time of a quick run.
func (b *bench) scaled(d time.Duration) time.Duration {
	if b.report.Quick {
		return d / 10
	}
	return d
}

// busy has demand in every region for 4.8 times the limit, after a window in which the limit is just used up.
func (b *bench) busy() error {
	full, until := b.scaled(window), b.scaled(3*window)
	streams := func(int) []stream {
		n := float64(len(delays))
		return []stream{{Until: full, Rate: flow / n, Subjects: 1}, {From: full, Until: until, Rate: 1.6 * flow, Subjects: 1}}
	}
	sides := report.NewTable("way to decide", "units in the worst window", "% of the limit", "% of what is possible",
		"calls to the home for 1,000 decisions", "% failed")
	times := report.NewTable("way to decide", "region", "decisions/s", "p50, ms", "p99, ms", "calls made late, p99, ms")
	for _, d := range []decider{
		{Kind: leased, Prefix: "leased:"}, {Kind: central, Prefix: "central:"}, {Kind: apart, Prefix: "apart:"},
	} {
		d.Limit, d.Lease = b.limit(), b.lease()
		b.report.Say("all regions busy: %s", d.Kind)
		var counts [2]int64
		if d.Kind != leased {
			until = b.scaled(2 * window) // they do the same in every window
		}
		r, err := play(b.planet.plans(1, streams, d), b.counting(full, &counts[0]), b.counting(until-50*time.Millisecond, &counts[1]))
		if err != nil {
			return err
		}
		all := r.all(everything)
		later := of(all, func(c *record) bool { return c.Due >= r.begin.Add(full).UnixNano() })
		over, share := r.most(all, d.Limit), r.share(all, d.Limit, full)
		calls := 1000 * float64(counts[1]-counts[0]) / float64(max(1, len(later)))
		sides.Row(d.Kind, over, percent(over, d.Limit.Units), fmt.Sprintf("%.1f", share), report.Number(calls), failures(all))
		for i := range delays {
			own := of(r.of(i, everything), func(c *record) bool { return c.Due >= r.begin.Add(full).UnixNano() })
			t, late := took(own)
			times.Row(d.Kind, name(i), int(float64(len(own))/(until-full).Seconds()), ms(percentile(t, .5)), ms(percentile(t, .99)), ms(percentile(late, .99)))
		}
		if d.Kind == leased {
			b.report.AtMost(float64(d.Limit.Units), float64(over), "units in the worst window over all regions, all busy")
			b.report.AtLeast(93, share, "% admitted of what is possible, all regions busy")
			b.report.AtMost(5, calls, "calls to the home for 1,000 decisions on a hot subject")
		}
		r.say(b.report, d.Kind)
	}
	b.data["Sides"], b.data["Times"] = sides, times
	return nil
}

// moving has all demand, twice the limit, in the nearest region and then in the furthest one.
func (b *bench) moving() error {
	b.report.Say("the demand moves")
	turn := b.scaled(window)
	streams := func(region int) []stream {
		switch region {
		case 0:
			return []stream{{Until: turn, Rate: flow, Subjects: 1}, {From: turn, Until: 2 * turn, Rate: 2 * flow, Subjects: 1}}
		case len(delays) - 1:
			return []stream{{From: 2 * turn, Until: 3 * turn, Rate: 2 * flow, Subjects: 1}}
		}
		return nil
	}
	d := decider{Kind: leased, Prefix: "moving:", Limit: b.limit(), Lease: b.lease()}
	r, err := play(b.planet.plans(2, streams, d))
	if err != nil {
		return err
	}
	all := r.all(everything)
	share, over := r.share(all, d.Limit, turn), r.most(all, d.Limit)
	b.report.AtLeast(90, share, "% admitted of what is possible, one region has all the demand, then another")
	b.report.AtMost(float64(d.Limit.Units), float64(over), "units in the worst window over all regions, demand that moves")
	b.data["MovingShare"], b.data["MovingMost"] = fmt.Sprintf("%.1f", share), over
	r.say(b.report, "the demand moves")
	return nil
}

// latency compares decisions in the furthest region, in alternating turns, with plain ones on that region's own Redis.
func (b *bench) latency() error {
	rounds := b.report.ClientRounds
	turn := b.scaled(4 * time.Second)
	b.report.Say("a decision in the furthest region, %d rounds of %v", rounds, 2*turn)
	last := len(delays) - 1
	roomy := limit{100_000, window}
	const rate = 1000
	const first = 1000 // labels of the first quarters of turns
	streams := func(region int) (all []stream) {
		all = append(all, stream{Label: -1, Until: time.Duration(2*rounds+1) * turn, Rate: 0.3 * rate, Subjects: 1})
		if region != last {
			return all
		}
		all[0].Until = turn // to begin with
		for i := range 2 * rounds {
			from := time.Duration(i+1) * turn
			warm := from + turn/4
			all = append(all, stream{Decider: i % 2, Label: first + i, From: from, Until: warm, Rate: rate, Subjects: 1},
				stream{Decider: i % 2, Label: i, From: warm, Until: from + turn, Rate: rate, Subjects: 1})
		}
		return all
	}
	r, err := play(b.planet.plans(3, streams, decider{Kind: leased, Prefix: "far:", Limit: roomy, Lease: b.lease()},
		decider{Kind: apart, Prefix: "own:", Limit: roomy}))
	if err != nil {
		return err
	}
	var p50, p99, late, jump50, jump99 [2]report.Figure
	for i := range 2 * rounds {
		t, l := took(r.of(last, func(s *stream, c *record) bool { return s.Label == i }))
		j, _ := took(r.of(last, func(s *stream, c *record) bool { return s.Label == first+i }))
		jump50[i%2].Add(inMS(percentile(j, .5)))
		jump99[i%2].Add(inMS(percentile(j, .99)))
		p50[i%2].Add(inMS(percentile(t, .5)))
		p99[i%2].Add(inMS(percentile(t, .99)))
		late[i%2].Add(inMS(percentile(l, .99)))
	}
	table := report.NewTable("a decision in the region "+name(last), "p50, ms", "p99, ms", "calls made late, p99, ms")
	table.Row("leases of a home that is far away", p50[0], p99[0], late[0])
	table.Row("plain, on the region's own Redis alone", p50[1], p99[1], late[1])
	table.Row("leases, the first quarter of a turn", jump50[0], jump99[0], "")
	table.Row("plain, the first quarter of a turn", jump50[1], jump99[1], "")
	b.report.AtMost(1.2, report.Ratio(p50[0], p50[1]), "p50 of a decision in the furthest region : on its own Redis alone")
	b.report.AtMost(1.2, report.Ratio(p99[0], p99[1]), "p99 of a decision in the furthest region : on its own Redis alone")
	b.report.AtMost(5, p99[0].Median(), "p99 of a decision in the furthest region, ms")
	b.data["Latency"], b.data["LatencyRate"], b.data["LatencyRounds"], b.data["LatencyTurn"] = table, rate, rounds, turn
	r.say(b.report, "a decision in the furthest region")
	return nil
}

// faults has all faults in one run.
func (b *bench) faults() error {
	b.report.Say("a partition, a restart and a failover")
	length := b.scaled(2 * window)
	events, err := together(b.planet, func(part float64) time.Duration { return time.Duration(part * float64(length)) })
	if err != nil {
		return err
	}
	streams := func(int) []stream { return []stream{{Until: length, Rate: flow, Subjects: 1}} }
	d := decider{Kind: served, Prefix: "faults", Limit: b.limit(), Lease: b.lease()}
	dir, err := os.MkdirTemp("", "regionbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := build(dir)
	if err != nil {
		return err
	}
	if err := b.planet.serve(binary, d); err != nil {
		return err
	}
	r, err := play(b.planet.plans(4, streams, d), events...)
	if err != nil {
		return err
	}
	all := r.all(everything)
	over := r.most(all, d.Limit)
	b.report.AtMost(float64(d.Limit.Units), float64(over), "units in the worst window over all regions, through a partition, a restart and a failover")
	table := report.NewTable("region", "decisions/s", "units admitted", "% failed", "p50, ms", "p99, ms")
	for i := range delays {
		own := r.of(i, everything)
		t, _ := took(own)
		table.Row(name(i), int(float64(len(own))/length.Seconds()), units(own, admitted), failures(own), ms(percentile(t, .5)), ms(percentile(t, .99)))
	}
	b.data["Faults"], b.data["FaultsMost"] = table, over
	r.say(b.report, "faults")
	return nil
}
