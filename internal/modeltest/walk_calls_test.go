package modeltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
)

// A setup configures a walk.
type setup struct {
	store     driver.Store
	clock     *judge.Clock // the store's, which the walk also sets back
	algorithm sash.Algorithm
	usual     usualCall
	steps     int
	prefix    string          // keeps the walk's keys apart from those of other walks on the same store
	choose    func(n int) int // returns a number from 0 to n-1
	little    bool            // the clock also goes back by little
	limits    [][]sash.Limit  // of walks with bookings, which often have IDs: nil is bookPlans
	large     bool            // limits are of as many units as there may be
	block     sash.Block      // of the one plan, without bookings, on a clock that does not go back
}

// usualCall is what most steps of a walk are: calls, calls on several subjects in one round trip, choices of one subject of
// several, or bookings. A store without the power for it has no such walk.
type usualCall int

const (
	calls usualCall = iota
	many
	choices
	bookings
)

type walk struct {
	setup
	oracle   *oracle
	turn     func() error
	opts     sash.Options
	plans    []*driver.Policy
	tight    []sash.Limit // of plans for bookings
	trace    []string
	reached  int64         // what the clock has shown since it went back
	last     driver.Answer // of the last call
	lastReq  driver.Request
	admitted []admitted          // can still be settled
	again    []driver.Settlement // applied, and may be repeated
	back     int64               // until when a store need not find a charge that shares an entry or is booked: the clock went back
	before   []driver.Settlement // of charges from before a reset: they do nothing
	onces    []onceCall          // calls with an ID
	books    bool                // the store books under the plans
}

type admitted struct {
	req driver.Request
	res driver.Answer
}

func (a admitted) settlement(id string) driver.Settlement {
	return driver.Settlement{Request: a.req, At: a.res.At, Delay: a.res.Delay, Source: a.res.Source, ID: id}
}

// randomCalls makes random calls on a store. If an answer differs from the definition, it returns an error with the calls that led to it.
func randomCalls(s setup) (err error) {
	w := &walk{setup: s, oracle: newOracle()}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nafter\n\t%s", err, strings.Join(w.trace, "\n\t"))
		}
	}()
	defer caught(&err)
	has := s.store.Powers()
	switch {
	case s.usual == many && has&driver.CanEach == 0, s.usual == choices && has&driver.CanAny == 0:
		return nil
	case s.usual == many:
		w.turn = func() error { return w.many() }
	case s.usual == choices:
		w.turn = func() error { return w.choice() }
	default:
		w.turn = func() error { return w.call(w.request()) }
	}
	if w.choose(2) == 1 {
		w.clock.Advance(time.Duration(w.choose(400*24*3600))*time.Second + time.Duration(w.choose(1e6))*time.Microsecond)
	}
	w.opts = sash.Options{Algorithm: s.algorithm, Block: s.block, CountRefused: s.usual != choices && w.choose(5) == 4 && s.usual != bookings}
	w.draw()
	w.books = w.books && (s.usual != choices || w.choose(2) == 1)
	for range w.steps {
		check(w.step())
	}
	return nil
}

// draw draws the policies of a walk.
func (w *walk) draw() {
	if w.algorithm == sash.SlidingBuckets {
		w.opts.Resolution = resolutions[w.choose(len(resolutions))]
	}
	if w.setup.usual == bookings && w.opts.Resolution > 0 {
		w.opts.Resolution = []time.Duration{time.Second, 300 * time.Millisecond}[w.choose(2)]
	}
	w.note("algorithm %v, resolution %v, count refused %v, at %v", w.algorithm, w.opts.Resolution, w.opts.CountRefused, w.clock.Now().UnixMicro())
	for range 1 + w.choose(3) {
		if w.blocks() && len(w.plans) > 0 {
			break
		}
		plan := must(w.plan())
		w.plans = append(w.plans, plan)
		w.books = w.store.Powers()&driver.CanBook != 0 && plan.Bookable()
		w.note("plan %d: %v", len(w.plans)-1, limitsOf(plan))
	}
}

func (w *walk) blocks() bool { return w.block.Refusals > 0 }

func (w *walk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *walk) step() error {
	if w.setup.usual == bookings {
		w.drift()
	}
	if w.limits != nil && w.choose(4) == 0 {
		return w.once()
	}
	turns := 18
	if w.books {
		turns = 21
	}
	switch w.choose(turns) {
	default:
		return w.turn()
	case 7: // peek
		req := w.request()
		req.Cost = 0
		return w.call(req)
	case 8: // repeat the last call
		if w.lastReq.Policy != nil {
			return w.call(w.lastReq)
		}
	case 9: // a little later
		w.move(time.Duration(1+w.choose(2_000_000)) * time.Microsecond)
	case 10: // much later
		if w.setup.usual == bookings {
			return nil
		}
		w.move(time.Duration(1+w.choose(3000)) * time.Duration(1+w.choose(40)) * time.Second)
	case 11: // around an instant of change
		return w.edge()
	case 12:
		return w.together()
	case 13:
		if w.little && w.choose(3) > 0 {
			w.goBack(1+w.choose(1500), 1) // around STEP_BACK
			return w.turn()
		}
		w.goBack(1+w.choose(1_000_000), 1+w.choose(20))
	case 14:
		return w.settle()
	case 15:
		if w.choose(4) < 3 {
			return nil
		}
		return w.reset()
	case 16:
		return w.once()
	case 17:
		return w.take()
	case 18:
		return w.each()
	}
	return nil
}

// goBack sets the clock back. A store need not find charges that this moves.
func (w *walk) goBack(micros, times int) {
	if w.blocks() {
		return
	}
	w.passed()
	now := w.clock.Now().UnixMicro()
	if w.little && micros*times <= 1500 && now < w.reached {
		return // two small steps make a large one
	}
	w.oracle.shown, w.reached = max(w.oracle.shown, now), now
	w.back = max(w.back, w.clock.Now().UnixMicro(), w.oracle.latest())
	if micros *= times; !w.little && micros <= stepBack {
		micros += stepBack
	}
	if micros > stepBack {
		w.reached, w.oracle.back = now-int64(micros), now
	}
	w.move(-time.Duration(micros) * time.Microsecond)
	w.admitted, w.again, w.before = nil, nil, nil
}

// decides returns when the store decides on a request, which a look shows if the clock trembles.
func (w *walk) decides(req driver.Request) (time.Time, error) {
	if !w.little {
		return w.clock.Now(), nil
	}
	look := req
	look.Cost, look.Partial, look.Forced = 0, false, false
	err := w.call(look)
	return time.UnixMicro(w.last.At), err
}

// drift moves the clock by as much as bookings wait.
func (w *walk) drift() {
	switch n := w.choose(100); {
	case n < 50:
		w.move(time.Duration(w.choose(2_000_000)) * time.Microsecond)
	case n == 50:
		w.move(time.Duration(w.choose(3)) * 20 * time.Second)
	case n < 54:
		w.goBack(1+w.choose(8_000_000), 1)
	case w.little && n < 70:
		w.goBack(1+w.choose(1500), 1) // around STEP_BACK
	}
}

func (w *walk) move(d time.Duration) {
	w.note("the clock moves by %v", d)
	w.clock.Advance(d)
}

// call makes one call and compares the answer.
func (w *walk) call(req driver.Request) error {
	res := must(drivertest.Of(w.store).Decide(context.Background(), req))
	w.last, w.lastReq = res, req
	return w.check([]driver.Request{req}, []driver.Answer{res})
}

// together makes one call on both keys.
func (w *walk) together() error {
	if w.store.Powers()&driver.CanAll == 0 || w.blocks() {
		return nil
	}
	first, second := w.request(), w.request()
	first.Key, second.Key = w.prefix+"k0", w.prefix+"k1"
	second.Within = first.Within
	reqs := []driver.Request{first, second}
	results := must(drivertest.Of(w.store).All(context.Background(), reqs...))
	return w.check(reqs, results)
}

func (w *walk) check(reqs []driver.Request, results []driver.Answer) error {
	allowed := true
	for i, req := range reqs {
		w.note("at %d: %s cost %d within %d under %v: allowed %v, %d left, retry %d, delay %d", results[i].At, req.Key, req.Cost,
			req.Within, limitsOf(req.Policy), results[i].Allowed(), results[i].Remaining(), results[i].Retry(), results[i].Delay)
		allowed = allowed && results[i].Allowed()
	}
	check(w.oracle.Check(w.clock.Now(), reqs, results))
	for i, req := range reqs {
		if results[i].Firm && slices.ContainsFunc(w.admitted, func(a admitted) bool { return a.req.Key == req.Key && a.res.At > results[i].At }) {
			return fmt.Errorf("a refusal is firm although a booking can be given back")
		}
		if allowed && req.Cost > 0 && !w.opts.CountRefused && (w.algorithm != sash.SlidingBuckets && !w.books || results[i].At > w.back) {
			w.admitted = append(w.admitted, admitted{req, results[i]})
		}
	}
	return nil
}

// edge moves to the instant at which the last call is admitted again, or units are released, or one microsecond
// before that, and repeats the call.
func (w *walk) edge() error {
	limits := w.last.Statuses()
	if len(limits) == 0 {
		return nil
	}
	d := w.last.Retry()
	if l := limits[w.choose(len(limits))]; d == 0 || w.choose(4) == 3 {
		d = l.Release
		if w.choose(2) == 1 {
			d = l.Reset
		}
	}
	d -= w.clock.Now().UnixMicro() - (w.last.At - w.last.Delay)
	if d < 2 {
		return nil
	}
	w.move(time.Duration(d-1) * time.Microsecond)
	if err := w.call(w.lastReq); err != nil || w.choose(2) == 1 {
		return err
	}
	w.move(time.Microsecond)
	return w.call(w.lastReq)
}

// settle corrects a charge, sometimes more than once: only the first time counts.
func (w *walk) settle() error {
	ok := w.store.Powers()&driver.CanSettle != 0
	if ok && len(w.before) > 0 && w.choose(2) == 0 {
		return w.settleBefore()
	}
	if !ok || len(w.admitted) == 0 {
		return nil
	}
	i := w.choose(len(w.admitted))
	a := w.admitted[i]
	w.admitted = append(w.admitted[:i:i], w.admitted[i+1:]...)
	w.outlive(a)
	set := a.settlement(fmt.Sprint(w.prefix, "s", len(w.trace)))
	switch cost := a.req.Cost; {
	case w.choose(3) == 0: // cancel it
	case w.choose(2) == 0:
		set.Units = int64(w.choose(int(cost)))
	case cost < 1e6: // an entry holds at most MaxUnits
		set.Units = cost + 1 + int64(w.choose(int(2*cost+3)))
	default:
		set.Units = cost
	}
	times := 1 + w.choose(3)
	if times == 1 {
		set.ID = ""
	}
	w.note("settle %s cost %d of %d under %v: %d units, %d times", a.req.Key, a.req.Cost, a.res.At, limitsOf(a.req.Policy), set.Units, times)
	w.oracle.Settle(w.clock.Now(), set)
	for range times {
		check(drivertest.Of(w.store).Settle(context.Background(), set))
	}
	if times == 3 { // and once more after other calls
		w.again = append(w.again, set)
	}
	if len(w.again) > 0 && w.choose(3) == 0 {
		set := w.again[w.choose(len(w.again))]
		w.note("settle %s of %d again", set.Request.Key, set.At)
		check(drivertest.Of(w.store).Settle(context.Background(), set))
	}
	return w.call(driver.Request{Key: a.req.Key, Policy: a.req.Policy})
}

// outlive sometimes moves to where a charge leaves one of its limits or can no longer be settled, or to just before that.
func (w *walk) outlive(a admitted) {
	if w.choose(4) > 0 {
		return
	}
	set, limits := a.settlement(""), limitsOf(a.req.Policy)
	leaves := set.Expires()
	if i := w.choose(len(limits) + 1); i < len(limits) {
		if leaves = set.At + longest(limits[i]); limits[i].Period != 0 {
			_, leaves = bounds(limits[i], set.At)
		}
	}
	if d := leaves - int64(w.choose(2)) - w.clock.Now().UnixMicro(); d > 0 {
		w.move(time.Duration(d) * time.Microsecond)
	}
}

func (w *walk) reset() error {
	if w.store.Powers()&driver.CanForget == 0 {
		return nil
	}
	key := w.key()
	w.note("reset %s", key)
	check(drivertest.Of(w.store).Forget(context.Background(), key, w.plans[0]))
	w.oracle.Reset(key, w.algorithm)
	for i, a := range w.admitted {
		if a.req.Key == key {
			w.before = append(w.before, a.settlement(fmt.Sprint(w.prefix, "before ", len(w.trace), i)))
		}
	}
	w.admitted, w.again = nil, nil
	for i := range w.onces {
		if w.onces[i].req.Key == key {
			w.onces[i].remembered = false
		}
	}
	w.move(time.Microsecond) // a charge of the instant of the reset may be of before or after it
	return w.call(driver.Request{Key: key, Policy: w.plans[0]})
}

// settleBefore corrects a charge from before a reset, which does nothing.
func (w *walk) settleBefore() error {
	set := w.before[w.choose(len(w.before))]
	set.Units = int64(w.choose(2)) * (set.Request.Cost + 5)
	w.note("settle %s of %d, which a reset has removed: %d units", set.Request.Key, set.At, set.Units)
	check(drivertest.Of(w.store).Settle(context.Background(), set))
	return w.call(driver.Request{Key: set.Request.Key, Policy: set.Request.Policy})
}

// each makes several calls on one key in one round trip, and compares each answer.
func (w *walk) each() error {
	if w.store.Powers()&driver.CanEach == 0 {
		return nil
	}
	reqs := []driver.Request{w.request()}
	for range w.choose(6) {
		req := w.request()
		req.Key, req.Policy = reqs[0].Key, reqs[0].Policy
		req.Cost = min(req.Cost, req.Policy.MostUnits())
		reqs = append(reqs, req)
	}
	return w.inOne(reqs)
}

// inOne makes calls in one round trip, and checks each answer by itself.
func (w *walk) inOne(reqs []driver.Request) error {
	ops := must(drivertest.Of(w.store).Each(context.Background(), reqs...))
	w.note("%d calls in one", len(reqs))
	for i := range reqs {
		if ops[i].Err != nil {
			return fmt.Errorf("Each: %w", ops[i].Err)
		}
		check(w.check(reqs[i:i+1], []driver.Answer{ops[i].Answer}))
	}
	return nil
}

// many makes calls on several subjects in one round trip, and checks each answer by itself.
func (w *walk) many() error {
	var reqs []driver.Request
	for i := range 1 + w.choose(5) {
		req := w.request()
		req.Key, req.Within = fmt.Sprintf("%sk%d", w.prefix, i), 0
		if w.choose(6) == 5 {
			req.Cost = 0
		}
		if g, ok := driver.Behind[gatherer](w.store); !ok || !gathers(g, req) {
			return w.call(req)
		}
		reqs = append(reqs, req)
	}
	return w.inOne(reqs)
}

// plain returns a charge.
func plain(req driver.Request) *driver.Op {
	return &driver.Op{Settlement: driver.Settlement{Request: req}}
}

type gatherer interface {
	Gathers(op *driver.Op) (place int, ok bool)
}

func gathers(g gatherer, req driver.Request) bool {
	_, ok := g.Gathers(plain(req))
	return ok
}
