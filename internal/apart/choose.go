package apart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"example.com/sash/driver"
)

// Choose carries out a batch of mode [driver.Any] with a store that cannot do so in one step. It looks at a group of subjects
// concurrently, and decides on the subject with most room. If other calls have taken that room meanwhile, it decides on the next
// best. If no subject has room, it decides on the one that should have room first according to the looks. So a call is refused or
// booked only if every subject was without room when looked at, and another subject may have room earlier. A look at a subject
// with calendar limits alone does not show bookings that lie ahead.
//
// At most one subject is charged, perhaps also after an error of a decision. Choose leaves out subjects that the store rejects.
func Choose(ctx context.Context, store driver.Store, b *driver.Batch) error {
	soonest, expected, bad := -1, int64(0), error(nil)
	for begin := 0; begin < len(b.Ops); begin += driver.ChoiceGroup {
		group := b.Ops[begin:min(begin+driver.ChoiceGroup, len(b.Ops))]
		looks, errs := make([]driver.Answer, len(group)), make([]error, len(group))
		var all sync.WaitGroup
		for i := range group {
			req := group[i].Request
			req.Cost, req.Within = 0, 0
			all.Go(func() { looks[i], errs[i] = driver.Decide(ctx, store, req) })
		}
		all.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, driver.ErrRejected) {
				return errors.Join(errs...)
			}
			bad = cmp.Or(bad, err)
		}
		for _, i := range byRoom(group, looks) {
			if errs[i] != nil {
				continue
			}
			req := group[i].Request
			req.Within = min(req.Within, 1) // only now: a call that may not be booked at all would go ahead of bookings
			answer, err := driver.Decide(ctx, store, req)
			if err != nil || answer.Allowed() {
				b.Chosen, group[i].Answer = begin+i, answer
				return err
			}
			looks[i] = answer
		}
		for i := range group {
			if wait := expect(&group[i].Request, &looks[i]); errs[i] == nil && (soonest < 0 || wait < expected) {
				soonest, expected = begin+i, wait
			}
		}
	}
	if soonest < 0 {
		return fmt.Errorf("none of the %d subjects can be decided, the first because of this: %w", len(b.Ops), bad)
	}
	var err error
	b.Chosen = soonest
	b.Ops[soonest].Answer, err = driver.Decide(ctx, store, b.Ops[soonest].Request)
	return err
}

// Room returns the share of a limit's units that would be left after the request, for the limit with the smallest share.
// It is below zero if the request does not fit. The statuses come from a look at the request's subject.
func Room(req *driver.Request, statuses []driver.Status) float64 {
	least := 1.0
	for i := range statuses {
		least = min(least, float64(statuses[i].Remaining-req.Cost)/float64(req.Policy.Limits[i].Units))
	}
	return least
}

func byRoom(ops []driver.Op, looks []driver.Answer) []int {
	var fit []int
	room := make([]float64, len(ops))
	for i := range ops {
		req := &ops[i].Request
		if room[i] = Room(req, looks[i].Statuses()); room[i] >= 0 && expect(req, &looks[i]) <= 0 {
			fit = append(fit, i)
		}
	}
	slices.SortStableFunc(fit, func(a, b int) int { return cmp.Compare(room[b], room[a]) })
	return fit
}

// expect returns the least time until a request fits, judged by a look at its subject or by a refusal. A booking is not
// earlier than the last charge. The time until that charge has left its window shows when it was.
func expect(req *driver.Request, look *driver.Answer) (wait int64) {
	for i, s := range look.Statuses() {
		if s.Remaining < req.Cost {
			wait = max(wait, s.Retry, s.Release)
		}
		if l := &req.Policy.Limits[i]; req.Within > 0 && l.Period == 0 {
			wait = max(wait, s.Reset-l.Window)
		}
	}
	return wait
}
