package failover

import (
	"context"
	"fmt"

	"example.com/sash/driver"
)

var _ driver.Chooser = (*Store)(nil)

// DecideAny implements [driver.Chooser]. While the store is unavailable the failure mode answers for one subject after
// the other, in their order, until it admits one now: it does not compare their room. If the store has charged another
// subject by then, that charge stays.
func (s *Store) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	store, ok := s.store.(driver.Chooser)
	if !ok {
		return 0, driver.Answer{}, driver.ErrApart // the limiter looks at them one by one
	}
	type choice struct {
		request int
		answer  driver.Answer
	}
	out := ask(ctx, s.guard, s.part(reqs[0]), nil, func(ctx context.Context) (choice, error) {
		i, answer, err := store.DecideAny(ctx, reqs)
		if err == nil && (i < 0 || i >= len(reqs)) {
			err = fmt.Errorf("failover: the store chose request %d of %d", i, len(reqs))
		}
		return choice{i, answer}, err
	})
	if !out.failed {
		if out.err == nil {
			s.mirror(ctx, "", reqs[out.value.request], out.value.answer.Allowed(), out.value.answer.Delay)
		}
		return out.value.request, out.value.answer, out.err
	}
	stay := -1 // the request that was admitted locally
	defer func() {
		forgo(ctx, s.guard, &out, reqs[0], func(late choice) ([]driver.Request, []driver.Answer) {
			if late.request == stay {
				return nil, nil
			}
			return reqs[late.request : late.request+1], []driver.Answer{late.answer}
		})
	}()
	locally := func(i int, req driver.Request) (driver.Answer, error) {
		results, err := s.answer(ctx, "", []driver.Request{req}, out.err)
		if err != nil {
			return driver.Answer{}, err
		}
		if results[0].Allowed() && results[0].Source == driver.FromLocal {
			stay = i
			owe(s.guard, &out, []driver.Request{req}, results, func(late choice) bool { return late.request == i && late.answer.Allowed() })
		}
		return results[0], nil
	}
	var soonest choice
	for i, req := range reqs {
		req.Within = min(req.Within, 1) // now: the next may have room
		answer, err := locally(i, req)
		if err != nil || answer.Allowed() {
			return i, answer, err
		}
		if i == 0 || answer.Retry() < soonest.answer.Retry() {
			soonest = choice{i, answer}
		}
	}
	if i := soonest.request; reqs[i].Within > 0 {
		answer, err := locally(i, reqs[i])
		return i, answer, err
	}
	return soonest.request, soonest.answer, nil
}
