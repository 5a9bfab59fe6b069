package failover

import (
	"context"
	"fmt"

	"example.com/sash/driver"
)

var _ driver.Chooser = (*Store)(nil)

// DecideAny implements [driver.Chooser]. While the store is unavailable the failure mode answers for one subject after the
// other, in their order, until it admits one: it does not compare them. If the store has charged another subject by then,
// that charge stays.
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
	var soonest choice
	for i := range reqs {
		results, err := s.answer(ctx, "", reqs[i:i+1], out.err)
		if err != nil {
			return 0, driver.Answer{}, err
		}
		if results[0].Allowed() {
			owe(s.guard, &out, reqs[i:i+1], results, func(late choice) bool { return late.request == i && late.answer.Allowed() })
			return i, results[0], nil
		}
		if i == 0 || results[0].Retry() < soonest.answer.Retry() {
			soonest = choice{i, results[0]}
		}
	}
	return soonest.request, soonest.answer, nil
}
