package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"example.com/sash/driver"
)

// mostAny is the most subjects of a choice in a walk: more than two groups.
const mostAny = 2*driver.ChoiceGroup + 3

// choice makes one call on whichever of several subjects has most room: of few, so that they fill up, or of many.
func (w *walk) choice(store driver.Chooser) error {
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
	chosen, answer, err := store.DecideAny(context.Background(), reqs)
	if request.Within > 0 && errors.Is(err, driver.ErrApart) {
		return nil // a store need not book all kinds of limits in one step
	}
	if err != nil {
		return fmt.Errorf("DecideAny: %w", err)
	}
	for i, req := range reqs {
		w.note("any %d: %s cost %d under %v", i, req.Key, req.Cost, limitsOf(req.Policy))
	}
	w.note("at %d, within %d: %d is chosen: allowed %v, %d left, retry %d, delay %d", answer.At, request.Within, chosen, answer.Allowed(),
		answer.Remaining(), answer.Retry(), answer.Delay)
	if err := w.oracle.CheckAny(w.clock.Now(), reqs, chosen, &answer); err != nil {
		return err
	}
	w.last, w.lastReq = answer, reqs[chosen]
	return nil
}

// CheckAny compares a store's choice of one of several requests, and its answer, with the definition. It returns nil, or
// an error that names what is wrong.
func (o *oracle) CheckAny(at time.Time, reqs []driver.Request, chosen int, answer *driver.Answer) error {
	if chosen < 0 || chosen >= len(reqs) {
		return fmt.Errorf("subject %d of %d was chosen", chosen, len(reqs))
	}
	now := at.UnixMicro()
	o.see(now)
	looked := len(reqs)
	if answer.Allowed() && answer.Delay == 0 { // the groups after that of the chosen one are not looked at
		looked = min(looked, (chosen/driver.ChoiceGroup+1)*driver.ChoiceGroup)
	}
	want, open := -1, false
	var most *big.Rat
	soonest, shortest := 0, int64(0)
	for i, req := range reqs[:looked] {
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
