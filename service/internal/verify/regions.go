package verify

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/wire"
)

// RegionsOptions for RunRegions.
type RegionsOptions struct {
	Regions []Region // at least two
	Domain  string
	// Entries are those of the rule. One without a value gets values of the run's own, which nobody else calls.
	Entries []config.Entry
	Token   string // of a client that may decide in the domain. Empty is none
	For     time.Duration
	Seed    uint64 // determines costs and the order of keys, but not the timing
	Workers int    // in all regions, at least one in each
}

// A RegionsReport is the result of a run over regions. All instants are by the clock of this process.
type RegionsReport struct {
	Limits    []LimitReport
	Regions   []RegionReport
	Keys      int
	Uncounted int // admissions that no store counted: on_unavailable is open, and the stores did not answer
	Took      time.Duration
}

// A LimitReport is a limit with its fullest window over all regions.
type LimitReport struct {
	wire.Limit
	Refused  int     // calls that had no room in it
	Fullest  int64   // units that were certainly admitted in its fullest window
	ByRegion []int64 // of them
	Ends     time.Time
}

// A RegionReport is what the callers in a region saw.
type RegionReport struct {
	Region
	Admitted   int   // calls
	Units      int64 // of them
	Leased     int   // calls, of those that were admitted
	Refused    int
	Unanswered int
	P50, P99   time.Duration // of calls with an answer, to a hundredth
	LastError  error
}

// Over returns the limit that was exceeded the most, or nil.
func (r *RegionsReport) Over() (over *LimitReport) {
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.Fullest > l.Units && (over == nil || l.Fullest-l.Units > over.Fullest-over.Units) {
			over = l
		}
	}
	return over
}

// Answered reports whether any call got an answer. Without one there is no verdict.
func (r *RegionsReport) Answered() bool {
	return slices.ContainsFunc(r.Regions, func(region RegionReport) bool { return region.Admitted+region.Refused > 0 })
}

// rates is the part of a window by which it is judged shorter, because the clocks of this machine and of the home may run
// at different rates.
const rates = 1024

// longestRound is the most time whose calls are kept in memory and judged together.
const longestRound = 5 * time.Minute

// RunRegions calls services of several regions about the same subjects, and judges all admissions together, by this
// process's clock: a call was admitted at some instant between its request and its answer, so neither the way to a region
// nor another clock makes a window look fuller than it was. All regions ask about one subject all the time. The demand for
// another one moves from region to region.
//
// It ends after opts.For, after a round with a violation, or when the context ends. An error means that there is no verdict,
// or none for the rest.
func RunRegions(ctx context.Context, opts RegionsOptions) (*RegionsReport, error) {
	asker := newAsker(opts.Token, opts.Workers)
	defer asker.client.CloseIdleConnections()
	limits, err := asker.limits(ctx, opts.Regions, opts.asking(crand.Text(), 0))
	if err != nil {
		return nil, err
	}
	report := &RegionsReport{}
	for _, r := range opts.Regions {
		report.Regions = append(report.Regions, RegionReport{Region: r})
	}
	longest := time.Duration(0)
	for _, l := range limits {
		report.Limits = append(report.Limits, LimitReport{Limit: l, ByRegion: make([]int64, len(opts.Regions))})
		longest = max(longest, time.Duration(l.Window))
	}
	times := make([]latencies, len(opts.Regions))
	for i := range times {
		times[i] = make(latencies)
	}
	began := time.Now()
	for rounds := 0; ctx.Err() == nil && report.Over() == nil && (rounds == 0 || time.Since(began) < opts.For); rounds++ {
		s := newTour(&opts, asker, limits, rounds)
		s.run(ctx, min(opts.For-time.Since(began), max(round, min(2*longest, longestRound))))
		report.Took = time.Since(began)
		if err := s.judge(report, times); err != nil {
			return report, err
		}
	}
	for i := range times {
		r := &report.Regions[i]
		r.P50, r.P99 = times[i].percentile(.5), times[i].percentile(.99)
	}
	return report, report.judged()
}

// judged returns why the run shows nothing, or nil.
func (r *RegionsReport) judged() error {
	if r.Over() != nil {
		return nil
	}
	refused := 0
	for _, region := range r.Regions {
		if region.Admitted+region.Refused == 0 {
			if region.LastError != nil {
				return fmt.Errorf("region %s at %s answered no call: %w", region.Name, region.URL, region.LastError)
			}
			return fmt.Errorf("the run ended before region %s answered a call", region.Name)
		}
		refused += region.Refused
	}
	if refused == 0 {
		return fmt.Errorf("no call was refused, so the limits were not reached (at most %d of %s): give more --workers, or a longer --for",
			r.Limits[0].Fullest, r.Limits[0].Name)
	}
	return nil
}

// asking returns a request about one of the subjects of a round.
func (o *RegionsOptions) asking(own string, key int) ask {
	a := ask{Domain: o.Domain}
	for _, e := range o.Entries {
		if e.Value == "" {
			e.Value = fmt.Sprintf("verify-%s-%d", own, key)
		}
		a.Entries = append(a.Entries, entry{e.Key, e.Value})
	}
	return a
}

// keys is how many subjects a round has: the first has demand in all regions, and that of the second moves. If the values
// of all entries are given, there is only the first.
const keys = 2

// A tour is one round over the regions: its subjects, and the callers in all regions.
type tour struct {
	asker   *asker
	asks    [keys]ask
	limits  []wire.Limit
	keys    int
	regions int
	most    int64         // units of a call
	turn    time.Duration // how long a region has the demand that moves
	callers []*caller
	began   time.Time
	slept   time.Duration // how much of the round this machine's clocks did not count alike
}

// A caller makes one call after the other in a region.
type caller struct {
	tour    *tour
	region  int
	to      Region
	rng     *rand.Rand
	spans   [keys][]span // admissions
	times   latencies
	refused map[string]int // calls by the name of the limit
	seen    RegionReport
	unknown int // admissions that nothing counted
}

// shareOfLimit is which part of the smallest limit the largest calls ask for, so that a thousand calls or two reach it.
const shareOfLimit = 1000

func newTour(opts *RegionsOptions, a *asker, limits []wire.Limit, rounds int) *tour {
	g := &tour{asker: a, limits: limits, keys: 1, regions: len(opts.Regions), most: limits[0].Units}
	window := time.Duration(limits[0].Window)
	for _, l := range limits {
		g.most, window = min(g.most, l.Units), min(window, time.Duration(l.Window))
	}
	g.most = max(1, g.most/shareOfLimit)
	g.turn = max(100*time.Millisecond, min(window, opts.For/time.Duration(2*len(opts.Regions))))
	own := crand.Text()
	for i := range g.asks {
		g.asks[i] = opts.asking(own, i)
	}
	if slices.ContainsFunc(opts.Entries, func(e config.Entry) bool { return e.Value == "" }) {
		g.keys = keys
	}
	for i := range opts.Workers {
		region := i % len(opts.Regions)
		g.callers = append(g.callers, &caller{
			tour: g, region: region, to: opts.Regions[region], times: make(latencies), refused: make(map[string]int),
			rng: rng(Options{Seed: opts.Seed}, rounds, i),
		})
	}
	return g
}

func (g *tour) run(ctx context.Context, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	g.began = time.Now()
	var group sync.WaitGroup
	for _, c := range g.callers {
		group.Go(func() {
			for ctx.Err() == nil {
				c.call(ctx)
			}
		})
	}
	group.Wait()
	now := time.Now()
	g.slept = (now.Round(0).Sub(g.began.Round(0)) - now.Sub(g.began)).Abs()
}

// pick returns the subject of a call: in the region's turn, half of the time the one whose demand moves.
func (c *caller) pick(since time.Duration) int {
	if int(since/c.tour.turn)%c.tour.regions == c.region {
		return c.rng.IntN(c.tour.keys)
	}
	return 0
}

// rest is the longest pause of a caller that was refused.
const rest = 20 * time.Millisecond

func (c *caller) call(ctx context.Context) {
	sent := time.Since(c.tour.began)
	key := c.pick(sent)
	what := c.tour.asks[key]
	what.Cost = 1 + c.rng.Int64N(c.tour.most)
	// The end of the round does not cancel calls: their outcome would be unknown.
	d, err := c.tour.asker.post(context.WithoutCancel(ctx), c.to, "/v1/allow", what)
	done := time.Since(c.tour.began)
	if err != nil {
		c.seen.Unanswered++
		c.seen.LastError = err
		pause(ctx, rest)
		return
	}
	c.times.add(done - sent)
	if !d.Allowed {
		c.seen.Refused++
		if d.RefusedBy != nil {
			c.refused[*d.RefusedBy]++
		}
		pause(ctx, time.Duration(c.rng.Int64N(int64(rest))))
		return
	}
	c.seen.Admitted++
	c.seen.Units += what.Cost
	if d.Source != nil && *d.Source == "lease" {
		c.seen.Leased++
	}
	if d.Source == nil || *d.Source == "policy" {
		c.unknown++
	}
	c.spans[key] = append(c.spans[key], span{sent, done, what.Cost, c.region})
}

// ErrSlept means that windows cannot be compared, because this machine stood still.
var ErrSlept = errors.New("this machine slept during the run, or its clock was set: the times prove nothing; run it again")

// judge adds a round to the report.
func (g *tour) judge(report *RegionsReport, times []latencies) error {
	report.Keys += g.keys
	var spans [keys][]span
	for _, c := range g.callers {
		r := &report.Regions[c.region]
		r.Admitted += c.seen.Admitted
		r.Units += c.seen.Units
		r.Leased += c.seen.Leased
		r.Refused += c.seen.Refused
		r.Unanswered += c.seen.Unanswered
		if c.seen.LastError != nil {
			r.LastError = c.seen.LastError
		}
		report.Uncounted += c.unknown
		for i := range report.Limits {
			report.Limits[i].Refused += c.refused[report.Limits[i].Name]
		}
		for at, n := range c.times {
			times[c.region][at] += n
		}
		for key := range c.spans {
			spans[key] = append(spans[key], c.spans[key]...)
		}
	}
	for i := range report.Limits {
		l := &report.Limits[i]
		window := time.Duration(l.Window)
		for key := range spans {
			worst := fullest(spans[key], window-window/rates, len(report.Regions), l.Units)
			if worst.over > 0 && g.slept > window/(2*rates) {
				return ErrSlept
			}
			if worst.units > l.Fullest {
				l.Fullest, l.ByRegion, l.Ends = worst.units, worst.by, g.began.Add(worst.ends)
			}
		}
	}
	return nil
}
