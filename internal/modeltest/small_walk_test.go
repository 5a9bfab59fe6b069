package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
)

// A smallWalk is random calls on one subject, seen by callers who wait in real time while the store's clock goes back now and then.
// Whatever a log forgets or joins, no window holds more units than a limit, and bookings start in order until units come back.
type smallWalk struct {
	store    driver.Store
	clock    *judge.Clock
	rng      *rand.Rand
	real     time.Time
	key      string
	policies []*driver.Policy // the first has every limit
	most     int64            // units that an entry holds
	longest  time.Duration
	books    bool
	open     bool // units came back while bookings lay ahead: one may start before those that were booked earlier
	dear, up bool // calls cost as much as they can; they cost more when they are settled
	held     []*place
	again    []driver.Settlement // settled, with an ID
	charged  int64               // since the last reset
	last     int64               // when the store charged last
	calls    int
	met      map[string]int
	trace    []string
}

// A place is units that count from an instant on.
type place struct {
	set     driver.Settlement
	starts  time.Time // in real time
	units   int64
	settled bool
}

// smallLimits are limits of walks: of a few units, and of so many that charges fill entries and sums. The first is the longest.
var smallLimits = [][]sash.Limit{
	{sash.Every(40, 100*time.Second), sash.Every(12, 20*time.Second), sash.Every(6, 5*time.Second), sash.Every(25, 60*time.Second)},
	{sash.Every(240, 100*time.Second), sash.Every(230, 5*time.Second), sash.Every(60, 20*time.Second), sash.Every(130, 60*time.Second)},
	{sash.Every(398, 100*time.Second), sash.Every(3, 1*time.Second), sash.Every(20, 30*time.Second)},
	{sash.Every(398, 100*time.Second), sash.Every(390, 2*time.Second), sash.Every(395, 3*time.Second)},
	{sash.Every(60, 30*time.Second), sash.Every(20, 7*time.Second)},
}

// newSmallWalk returns the walk of a seed, where entries hold so many units. Limits are as large, but those of a sorted set.
func newSmallWalk(
	store driver.Store, clock *judge.Clock, seed uint64, a sash.Algorithm, most int64, books bool, met map[string]int,
) *smallWalk {
	rng := rand.New(rand.NewPCG(seed, 17))
	opts := inSeconds(a)
	opts.CountRefused = rng.IntN(4) == 0
	w := &smallWalk{
		store: store, clock: clock, rng: rng, real: clock.Now(), key: fmt.Sprint("small ", walks.Add(1)), most: most,
		books: books && rng.IntN(2) == 0, dear: rng.IntN(3) == 0, up: rng.IntN(3) == 0, met: met,
	}
	limits := slices.Clone(smallLimits[rng.IntN(len(smallLimits))])
	w.longest = limits[0].Window
	for i := 0; i < len(limits) && a != sash.SortedSetLog; i++ {
		limits[i].Units = limits[i].Units * (most + 1) / (mostOfEntry + 1)
	}
	for n := len(limits); len(w.policies) < 12; n = 1 + rng.IntN(len(limits)) {
		w.policies = append(w.policies, must(sash.NewPolicy(opts, limits[:n]...)))
		rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
	}
	w.books = w.books && store.Powers()&driver.CanBook != 0 && w.policies[0].Bookable()
	return w
}

// run makes calls until one is judged wrong.
func (w *smallWalk) run(steps int) error {
	for range steps {
		if err := w.step(); err != nil {
			return fmt.Errorf("%w\nafter\n\t%s", err, strings.Join(w.trace[max(0, len(w.trace)-25):], "\n\t"))
		}
	}
	return nil
}

func (w *smallWalk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d: "+format, append([]any{w.clock.Now().UnixMicro()}, args...)...))
}

func (w *smallWalk) step() (err error) {
	defer caught(&err)
	d := time.Duration(w.rng.IntN(2)*w.rng.IntN(5000)) * time.Millisecond
	if w.rng.IntN(200) == 0 {
		d = time.Duration(w.rng.IntN(300)) * time.Second
	}
	w.real = w.real.Add(d)
	w.clock.Advance(d)
	w.held = slices.DeleteFunc(w.held, func(p *place) bool { return w.real.Sub(p.starts) > 200*time.Second })
	w.calls++
	switch n := w.rng.IntN(100); {
	case n < 14 && len(w.held) > 0:
		return w.settle()
	case n < 16 && len(w.again) > 0: // what is settled stays as it is
		return drivertest.Of(w.store).Settle(context.Background(), w.again[w.rng.IntN(len(w.again))])
	case n == 16 && w.rng.IntN(4) == 0:
		w.last = 0
		return nil
	case n == 17:
		return w.reward()
	}
	policy := w.policies[w.rng.IntN(len(w.policies))]
	req := driver.Request{Key: w.key, Policy: policy, Cost: 1, MaySettle: !policy.CountRefused}
	switch n := w.rng.IntN(6); {
	case n == 0:
		req.Cost = 0
	case n < 3:
		req.Cost += w.rng.Int64N(policy.MostUnits())
	case w.dear:
		req.Cost = policy.MostUnits()
	}
	if w.books && req.Cost > 0 && w.rng.IntN(2) == 0 {
		req.Within = int64(w.rng.IntN(100_000_000))
	}
	if w.clock.Now().UnixMicro()-w.last >= w.longest.Microseconds() { // from now on the log keeps what the longest window needs
		check(w.reset())
		req.Policy, req.Cost, req.Within = w.policies[0], 1, 0
	}
	res, err := drivertest.Of(w.store).Decide(context.Background(), req)
	if err == nil {
		w.note("cost %d within %d under %v: %s", req.Cost, req.Within, policy.Limits, shown(&res))
		err = w.check(req, res)
	}
	if err == nil && req.Cost > 0 && res.Allowed() && w.rng.IntN(30) == 0 { // between two calls, so that the store sees how far
		w.met["the clock went back"]++
		w.clock.Advance(-time.Duration(2+w.rng.IntN(60_000)) * time.Millisecond) // a step of one moves no booking
		w.again = nil                                                            // an ID may have ended, and is forgotten
		_, err = drivertest.Of(w.store).Decide(context.Background(), driver.Request{Key: w.key, Policy: policy})
	}
	return err
}

func (w *smallWalk) reset() error {
	w.note("reset")
	w.held, w.again, w.charged = nil, nil, 0
	defer w.clock.Advance(time.Millisecond)
	return drivertest.Of(w.store).Forget(context.Background(), w.key, w.policies[0])
}

// check judges an answer as its caller would.
func (w *smallWalk) check(req driver.Request, res driver.Answer) error {
	p := &place{starts: w.real.Add(time.Duration(res.Delay) * time.Microsecond), units: req.Cost}
	p.set = driver.Settlement{Request: req, At: res.At, Delay: res.Delay, Source: res.Source}
	ends := []time.Time{p.starts}
	w.open = w.open && w.ahead()
	for _, other := range w.held {
		if other.units > 0 && other.starts.After(p.starts) {
			ends = append(ends, other.starts)
			if res.Delay > 0 && other.set.Delay > 0 {
				if w.open {
					w.met["a booking filled a gap"]++
					continue
				}
				return fmt.Errorf("a call starts at %v, and one that was booked before at %v", p.starts, other.starts)
			}
		}
	}
	switch {
	case req.Cost == 0:
		return w.left(&req, &res, ends)
	case !res.Allowed():
		w.met["a call was refused"]++
		if !w.books && len(req.Policy.Limits) == 1 && w.charged+req.Cost <= req.Policy.Limits[0].Units {
			return fmt.Errorf("%d are refused, and no more than %d were ever charged", req.Cost, w.charged)
		}
		if !req.Policy.CountRefused {
			return nil
		}
	case res.Delay > req.Within:
		return fmt.Errorf("a call within %d is booked %d ahead", req.Within, res.Delay)
	case res.Delay > 0:
		w.met["a call was booked"]++
	case len(ends) > 1:
		w.met["a call went ahead of bookings"]++
	}
	w.charged, w.last = w.charged+req.Cost, res.At
	w.held = append(w.held, p)
	if len(w.held) > 2*smallEntries {
		w.met["a log was full"]++
	}
	if !res.Allowed() {
		return w.left(&req, &res, ends)
	}
	for _, l := range req.Policy.Limits {
		for _, end := range ends {
			if window := time.Duration(l.Window) * time.Microsecond; end.Sub(p.starts) < window && w.used(end, window) > l.Units {
				return fmt.Errorf("%d were admitted in a window of %v that ends at %v", w.used(end, window), l.String(), end)
			}
		}
	}
	return w.left(&req, &res, ends)
}

// ahead reports whether a booking may lie ahead of the store's clock.
func (w *smallWalk) ahead() bool {
	return slices.ContainsFunc(w.held, func(p *place) bool { return p.set.At > w.clock.Now().UnixMicro() || p.starts.After(w.real) })
}

// left checks what is left as of now.
func (w *smallWalk) left(req *driver.Request, res *driver.Answer, ends []time.Time) error {
	if res.Delay > 0 || len(ends) > 1 {
		return nil
	}
	for i, l := range req.Policy.Limits {
		used, got := w.used(w.real, time.Duration(l.Window)*time.Microsecond), res.Statuses()[i].Remaining
		if got > max(0, l.Units-used) {
			return fmt.Errorf("%d units are left of %s, which holds %d", got, l.String(), used)
		}
	}
	return nil
}

// used returns the units in the window that ends at an instant.
func (w *smallWalk) used(end time.Time, window time.Duration) (used int64) {
	for _, p := range w.held {
		if p.starts.After(end.Add(-window)) && !p.starts.After(end) {
			used += p.units
		}
	}
	return used
}

// settle changes what a call is charged, once.
func (w *smallWalk) settle() error {
	p := w.held[w.rng.IntN(len(w.held))]
	if p.settled || !p.set.Request.MaySettle {
		return nil
	}
	cost := p.set.Request.Cost
	p.set.Units = []int64{0, 0, 0, 1, cost / 2, min(cost+2, driver.MaxUnits), w.most}[w.rng.IntN(7)]
	if w.up {
		p.set.Units = []int64{w.most, w.most, min(cost+100, driver.MaxUnits), 0}[w.rng.IntN(4)]
	}
	if p.set.Delay > 0 { // more would delay what is booked behind it
		p.set.Units = min(p.set.Units, cost)
	}
	if w.rng.IntN(2) == 0 {
		p.set.ID = fmt.Sprint(w.key, w.calls)
		w.again = append(w.again, p.set)
	}
	w.note("settle %d of %d to %d", cost, p.set.At, p.set.Units)
	if p.settled = true; w.clock.Now().UnixMicro() >= p.set.Expires() { // nothing changes
		w.met["a charge was settled that had left"]++
		return drivertest.Of(w.store).Settle(context.Background(), p.set)
	}
	w.met["a charge was settled"]++
	w.charged += max(0, p.set.Units-cost)
	w.open = w.open || p.set.Units < cost && w.ahead()
	p.units = p.set.Units
	return drivertest.Of(w.store).Settle(context.Background(), p.set)
}

// reward gives units back, often when all have left: those of the oldest charges that count.
func (w *smallWalk) reward() error {
	policy := w.policies[w.rng.IntN(len(w.policies))]
	if policy.CountRefused { // a store forgets what refused calls outweigh
		return nil
	}
	window := time.Duration(policy.Longest()) * time.Microsecond
	if w.rng.IntN(2) == 0 {
		d := window - time.Microsecond*time.Duration(w.rng.IntN(2))
		w.real = w.real.Add(d)
		w.clock.Advance(d)
	}
	req := driver.Request{Key: w.key, Policy: policy, Cost: 1 + w.rng.Int64N(policy.MostUnits())}
	res, err := drivertest.Of(w.store).GiveBack(context.Background(), req)
	w.note("%d units of %d are given back in %v", res.Charged, req.Cost, window)
	counts := func(p *place) bool { return p.starts.After(w.real.Add(-window)) && !p.starts.After(w.real) }
	gone := w.clock.Now().UnixMicro() >= w.last+policy.Longest() && !slices.ContainsFunc(w.held, counts)
	switch full := w.charged >= w.most; { // an entry may be full, and gives nothing back
	case err != nil || res.Charged > req.Cost || gone && res.Charged > 0:
		return fmt.Errorf("%d of %d units were given back, all gone: %v, %v", res.Charged, req.Cost, gone, err)
	case !full && res.Charged < min(req.Cost, w.used(w.real, window)):
		return fmt.Errorf("%d of %d units were given back, and %d count", res.Charged, req.Cost, w.used(w.real, window))
	case gone:
		w.met["a reward came when all had left"]++
	}
	w.open = w.open || res.Charged > 0 && w.ahead()
	slices.SortStableFunc(w.held, func(p, q *place) int { return p.starts.Compare(q.starts) })
	left := res.Charged
	take := func(p *place) {
		takes := min(left, p.units)
		left, p.units, p.settled = left-takes, p.units-takes, true // what may be less is not settled to less
	}
	for _, p := range w.held {
		if counts(p) {
			take(p)
		}
	}
	for _, p := range slices.Backward(w.held) { // they count longer where a log has merged or a clock went back
		if !p.starts.After(w.real) {
			take(p)
		}
	}
	return nil
}
