package failover

import (
	"context"

	"example.com/sash/driver"
)

// Decide implements [driver.Store].
func (s *Store) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if answer, ok := s.recall(ctx, req); ok {
		s.mirror(ctx, "", charged(req, &answer), answer.Allowed(), answer.Delay)
		return answer, nil
	}
	var begin start[driver.Answer]
	if s.starter != nil && req.Within == 0 { // giving a late booking back would block the store's callback: see forgo
		begin = func(ctx context.Context, done func(driver.Answer, error)) driver.Started {
			return s.starter.Start(ctx, req, done)
		}
	}
	return s.decide(ctx, req, begin, func(ctx context.Context) (driver.Answer, error) { return s.store.Decide(ctx, req) })
}

// recall returns an answer that the store knows already while it is up: such a call needs no goroutine, no place among
// those under way, and no time. A panic of the store is left to the call itself.
func (s *Store) recall(ctx context.Context, req driver.Request) (answer driver.Answer, ok bool) {
	if s.recaller == nil || ctx.Err() != nil || s.part(req).now() != Up {
		return answer, false
	}
	defer func() {
		if recover() != nil {
			answer, ok = driver.Answer{}, false
		}
	}()
	return s.recaller.Recall(req)
}

// decide makes a decision by the store, or in its place.
func (s *Store) decide(
	ctx context.Context, req driver.Request, begin start[driver.Answer], decide func(context.Context) (driver.Answer, error),
) (driver.Answer, error) {
	out := askWith(ctx, s.guard, s.part(req), true, decided, begin, decide)
	if !out.failed {
		if out.err == nil {
			s.mirror(ctx, "", charged(req, &out.value), out.value.Allowed(), out.value.Delay)
		}
		return out.value, out.err
	}
	reqs := []driver.Request{req}
	results, err := s.answer(ctx, "", reqs, out.err)
	if err != nil || !stays(results, reqs) {
		forgo(ctx, s.guard, &out, req, func(late driver.Answer) ([]driver.Request, []driver.Answer) {
			return []driver.Request{req}, []driver.Answer{late}
		})
	}
	if err != nil {
		return driver.Answer{}, err
	}
	reqs[0] = charged(req, &results[0])
	owe(s.guard, &out, reqs, results, func(res driver.Answer) bool { return charges(reqs[0], res.Allowed()) })
	return results[0], nil
}

// DecideAll implements [driver.MultiStore]. While the store is unavailable the strictest mode of the requests counts.
func (s *Store) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	store, ok := s.store.(driver.MultiStore)
	if !ok {
		if _, settles := s.store.(driver.Settler); settles {
			return nil, driver.ErrApart // the limiter decides one by one
		}
		return nil, driver.ErrUnsupported
	}
	out := ask(ctx, s.guard, s.part(reqs[0]), nil, func(ctx context.Context) ([]driver.Answer, error) { return store.DecideAll(ctx, reqs) })
	if !out.failed {
		for i, req := range reqs[:min(len(reqs), len(out.value))] {
			s.mirror(ctx, "", req, admitted(out.value), out.value[i].Delay)
		}
		return out.value, out.err
	}
	results, err := s.answer(ctx, "", reqs, out.err)
	if err != nil || !stays(results, reqs) {
		forgo(ctx, s.guard, &out, reqs[0], func(late []driver.Answer) ([]driver.Request, []driver.Answer) { return reqs, late })
	}
	if err == nil {
		owe(s.guard, &out, reqs, results, func(late []driver.Answer) bool {
			return admitted(late) || reqs[0].Policy.CountRefused
		})
	}
	return results, err
}

// admitted reports whether a decision over several subjects admitted all of them.
func admitted(results []driver.Answer) bool {
	for i := range results {
		if !results[i].Allowed() {
			return false
		}
	}
	return true
}

// charged returns a request at the cost that an answer charged.
func charged(req driver.Request, answer *driver.Answer) driver.Request {
	if req.Partial {
		req.Cost = max(1, answer.Charged) // a refusal that is charged is one of a unit
	}
	return req
}

// charges reports whether a decision charged a request.
func charges(req driver.Request, allowed bool) bool {
	return req.Cost > 0 && (allowed || req.Policy.CountRefused)
}
