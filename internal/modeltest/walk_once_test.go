package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
)

// onceCall is a call with an ID, and its answer.
type onceCall struct {
	id         string
	req        driver.Request
	res        driver.Answer
	remembered bool
	forgotten  bool // by the store's clock: one that goes back may bring it back
}

// leeway is how much longer than required a store may remember an ID in a walk.
const leeway = time.Second

// once makes a call with an ID: a new one, or one used before, sometimes on another key.
func (w *walk) once() error {
	if w.store.Powers()&driver.CanID == 0 {
		return nil
	}
	if len(w.onces) == 0 || w.choose(3) == 0 {
		return w.callOnce(onceCall{id: fmt.Sprint("call ", len(w.trace)), req: w.request()})
	}
	i := w.choose(len(w.onces))
	before := w.onces[i]
	if w.choose(4) == 0 { // this is another call
		other := onceCall{id: before.id, req: before.req}
		other.req.Key = fmt.Sprint(w.prefix, "other", len(w.trace))
		return w.callOnce(other)
	}
	if w.choose(6) == 0 { // just before the store forgets it, or later
		end := time.UnixMicro(before.res.At).Add(driver.RepeatTime - time.Microsecond + time.Duration(w.choose(2))*2*leeway)
		if d := end.Sub(w.clock.Now()); d > 0 {
			w.move(d)
		}
	}
	if age := w.clock.Now().Sub(time.UnixMicro(before.res.At)); before.remembered && age >= driver.RepeatTime {
		if age <= driver.RepeatTime+leeway {
			return nil
		}
		before.remembered, before.forgotten = false, true
	}
	if !before.remembered {
		w.onces = append(w.onces[:i:i], w.onces[i+1:]...)
		return w.callOnce(before)
	}
	req := before.req
	req.Cost = int64(1 + w.choose(int(req.Cost))) // only the first counts
	other := w.choose(3) == 0
	if other {
		req.Policy = w.plans[w.choose(len(w.plans))]
		req.Cost = min(req.Cost, req.Policy.MostUnits())
	}
	w.note("%q again, with cost %d under %v", before.id, req.Cost, limitsOf(req.Policy))
	res := must(drivertest.Of(w.store).Once(context.Background(), before.id, req))
	if res.Allowed() != before.res.Allowed() || res.At != before.res.At || !w.delayed(&res, &before.res) || !other && res.Refusals != before.res.Refusals {
		return fmt.Errorf("the call %q got %+v, and repeated %+v", before.id, before.res, res)
	}
	look := req
	look.Cost, look.Policy = 0, unblocked(req.Policy) // a repetition is answered
	check(w.call(look))
	return compareRepeated(&res, w.last.Statuses())
}

// delayed reports whether a repetition has what is left of a booking's delay. One of a call that was not booked may have
// some when the clock has gone back behind it.
func (w *walk) delayed(again, first *driver.Answer) bool {
	left := max(0, again.At-w.clock.Now().UnixMicro())
	trembles := w.little && again.Delay < left && left-again.Delay <= stepBack
	return (again.Delay == left || trembles) && again.Allowed() || again.Delay == 0 && first.Delay == 0
}

// compareRepeated compares the statuses of a repeated call with those of a look.
func compareRepeated(res *driver.Answer, look []driver.Status) error {
	if n := len(res.Statuses()); n != len(look) {
		return fmt.Errorf("a repeated call got %d statuses for %d limits", n, len(look))
	}
	for i, got := range res.Statuses() {
		want := look[i]
		if want.Retry = 0; res.Refusals&(1<<i) != 0 {
			want.Retry = max(look[i].Retry, want.Release)
		}
		if got != want {
			return fmt.Errorf("a repeated call got %+v for limit %d, want %+v", got, i, want)
		}
	}
	return nil
}

// callOnce makes a call with an ID that the store does not remember.
func (w *walk) callOnce(c onceCall) error {
	w.note("a call %q", c.id)
	c.res = must(drivertest.Of(w.store).Once(context.Background(), c.id, c.req))
	c.remembered = c.res.Allowed() || c.req.Policy.CountRefused
	c.forgotten = c.forgotten && !c.remembered
	w.onces = append(w.onces, c)
	return w.check([]driver.Request{c.req}, []driver.Answer{c.res})
}

// passed forgets the calls that a store may have forgotten, before the clock goes back.
func (w *walk) passed() {
	w.onces = slices.DeleteFunc(w.onces, func(c onceCall) bool {
		return c.forgotten || c.remembered && w.clock.Now().Sub(time.UnixMicro(c.res.At)) >= driver.RepeatTime
	})
}

// mostAny is the most subjects of a choice in a walk: more than two groups.
const mostAny = 2*driver.ChoiceGroup + 3

// choice makes one call on whichever of several subjects has most room: of few, so that they fill up, or of many.
func (w *walk) choice() error {
	n := 1 + w.choose(3)
	if w.books {
		n = 2 + w.choose(2)
	}
	if w.choose(4) == 0 {
		n = 1 + w.choose(mostAny)
	}
	alike, first, request := w.choose(2) == 0, w.choose(n), w.request()
	if request.Within > 0 && w.choose(2) == 0 {
		request.Within = driver.MaxAhead
	}
	reqs := make([]driver.Request, n)
	for i := range reqs {
		reqs[i] = request
		if !alike {
			reqs[i] = w.request()
		}
		reqs[i].Key, reqs[i].Within = fmt.Sprintf("%sk%d", w.prefix, (first+i)%n), request.Within
	}
	chosen, answer, err := drivertest.Of(w.store).Any(context.Background(), reqs...)
	if request.Within > 0 && errors.Is(err, driver.ErrApart) {
		return nil // a store need not book all kinds of limits in one step
	}
	check(err)
	for i, req := range reqs {
		w.note("any %d: %s cost %d under %v", i, req.Key, req.Cost, limitsOf(req.Policy))
	}
	w.note("at %d, within %d: %d is chosen: allowed %v, %d left, retry %d, delay %d", answer.At, request.Within, chosen, answer.Allowed(),
		answer.Remaining(), answer.Retry(), answer.Delay)
	check(w.oracle.CheckAny(w.clock.Now(), reqs, chosen, &answer))
	w.last, w.lastReq = answer, reqs[chosen]
	return nil
}

// CheckAny compares a store's choice of one of several requests, and its answer, with the definition. It returns nil, or
// an error that names what is wrong.
func (o *oracle) CheckAny(at time.Time, reqs []driver.Request, chosen int, answer *driver.Answer) error {
	if chosen < 0 || chosen >= len(reqs) {
		return fmt.Errorf("subject %d of %d was chosen", chosen, len(reqs))
	}
	now := must(o.now(at, reqs[chosen:chosen+1], answer))
	shown := o.shown
	o.see(now)
	looked := len(reqs)
	if answer.Allowed() && answer.Delay == 0 { // the groups after that of the chosen one are not looked at
		looked = min(looked, (chosen/driver.ChoiceGroup+1)*driver.ChoiceGroup)
	}
	want, open := -1, false
	var most *big.Rat
	soonest, shortest := 0, int64(0)
	for i, req := range reqs[:looked] {
		if l, ok := o.state(req).(*log); ok {
			open = open || l.stands(now, 0) // each subject may have an instant of its own
		} else {
			open = open || now < shown
		}
		o.state(req).touch(now, limitsOf(req.Policy))
		room, retry, fits := big.NewRat(1, 1), int64(0), true
		for _, limit := range limitsOf(req.Policy) {
			certain, possible := o.look(now, req, req.Cost, limit)
			open = open || certain != possible
			fits = fits && !certain.refused
			retry = max(retry, certain.retry)
			if left := big.NewRat(certain.remaining-req.Cost, limit.Units); left.Cmp(room) < 0 {
				room = left
			}
			open = open || o.far(now, req, limit)
		}
		if ahead := o.ahead(now, req); books(req) || ahead { // until it has room behind all bookings
			least, most := o.behind(now, reqs[i:i+1])
			open = open || least != most
			fits = fits && !(books(req) && ahead)
			if !fits {
				retry = least - now
			}
		}
		if fits && (want < 0 || want/driver.ChoiceGroup == i/driver.ChoiceGroup && room.Cmp(most) > 0) {
			want, most = i, room
		}
		if i == 0 || retry < shortest {
			soonest, shortest = i, retry
		}
	}
	if want < 0 {
		want = soonest
	}
	if chosen != want && !open {
		return fmt.Errorf("subject %d was chosen, want %d", chosen, want)
	}
	return o.Check(at, reqs[chosen:chosen+1], []driver.Answer{*answer})
}
