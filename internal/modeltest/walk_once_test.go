package modeltest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/sash/driver"
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
	store, ok := w.store.(driver.Deduplicator)
	if !ok {
		return nil
	}
	if len(w.onces) == 0 || w.choose(3) == 0 {
		return w.callOnce(store, onceCall{id: fmt.Sprint("call ", len(w.trace)), req: w.request()})
	}
	i := w.choose(len(w.onces))
	before := w.onces[i]
	if w.choose(4) == 0 { // this is another call
		other := onceCall{id: before.id, req: before.req}
		other.req.Key = fmt.Sprint(w.prefix, "other", len(w.trace))
		return w.callOnce(store, other)
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
		return w.callOnce(store, before)
	}
	req := before.req
	req.Cost = int64(1 + w.choose(int(req.Cost))) // only the first counts
	other := w.choose(3) == 0
	if other {
		req.Policy = w.plans[w.choose(len(w.plans))]
		req.Cost = min(req.Cost, req.Policy.MostUnits())
	}
	w.note("%q again, with cost %d under %v", before.id, req.Cost, limitsOf(req.Policy))
	res, err := store.DecideOnce(context.Background(), before.id, req)
	if err != nil {
		return fmt.Errorf("DecideOnce: %w", err)
	}
	if res.Allowed() != before.res.Allowed() || res.At != before.res.At || !w.delayed(&res, &before.res) || !other && res.Refusals != before.res.Refusals {
		return fmt.Errorf("the call %q got %+v, and repeated %+v", before.id, before.res, res)
	}
	look := req
	look.Cost = 0
	if err := w.call(look); err != nil {
		return err
	}
	return compareRepeated(&res, w.last.Statuses())
}

// delayed reports whether a repetition has what is left of a booking's delay. One of a call that was not booked may have
// some when the clock has gone back behind it.
func (w *walk) delayed(again, first *driver.Answer) bool {
	left := max(0, again.At-w.clock.Now().UnixMicro())
	return again.Delay == left && again.Allowed() || again.Delay == 0 && first.Delay == 0
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
func (w *walk) callOnce(store driver.Deduplicator, c onceCall) error {
	w.note("a call %q", c.id)
	var err error
	if c.res, err = store.DecideOnce(context.Background(), c.id, c.req); err != nil {
		return fmt.Errorf("DecideOnce: %w", err)
	}
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
