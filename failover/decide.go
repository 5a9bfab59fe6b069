package failover

import (
	"context"
	"fmt"

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
	out := askWith(ctx, s.guard, s.part(req), s.patience(req.Within), true, decided, begin, decide)
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
	out := askWith(ctx, s.guard, s.part(reqs[0]), s.patience(reqs[0].Within), true, nil, nil, func(ctx context.Context) ([]driver.Answer, error) {
		return store.DecideAll(ctx, reqs)
	})
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
	out := askWith(ctx, s.guard, s.part(reqs[0]), s.patience(reqs[0].Within), true, nil, nil, func(ctx context.Context) (choice, error) {
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

// DecideOnce implements [driver.Deduplicator]. While the store is unavailable, mode Local remembers the ID too: it
// charges the call locally once, and writes it to the store with the ID later. So a call that is repeated after a
// failure is charged to the store once, wherever it was admitted, and it is never [Stats.Doubtful] if the store is back
// within [driver.RepeatTime]. Mode Open ignores IDs, because it charges nothing.
//
// Some calls are decided anew when they are repeated while the store is unavailable: those that cost more than this
// process's share, and those that another process received. The store decides a call anew if it refused the call when
// the call was written to it.
func (s *Store) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	store, ok := s.store.(driver.Deduplicator)
	if !ok {
		return driver.Answer{}, driver.ErrUnsupported
	}
	out := askWith(ctx, s.guard, s.part(req), s.patience(req.Within), true, decided, nil, func(ctx context.Context) (driver.Answer, error) {
		return store.DecideOnce(ctx, id, req)
	})
	if !out.failed {
		if out.err == nil {
			s.mirror(ctx, id, req, out.value.Allowed(), out.value.Delay)
		}
		return out.value, out.err
	}
	results, err := s.answer(ctx, id, []driver.Request{req}, out.err)
	if err != nil {
		return driver.Answer{}, err
	}
	res := results[0]
	if res.Source == driver.FromLocal && charges(req, res.Allowed()) {
		b := s.owed(req.Key, req.Policy)
		b.add(id, req, res.At, res.Delay)
		if out.late != nil {
			f := b.call(id, req, res.At, res.Delay)
			out.late.ends(func(driver.Answer, error) { b.end(f) })
		}
	}
	return res, nil
}

// Books implements [driver.Booker]: it reports whether the store behind it books.
func (s *Store) Books(p *driver.Policy) bool { return driver.CanBook(s.store, p) }

// forgo gives back what the store books after the failure mode has answered otherwise: no caller knows of that place, and
// those behind it would wait for nothing. booked returns the late requests that nobody knows of, and their answers.
func forgo[T any](ctx context.Context, g *guard, out *outcome[T], first driver.Request, booked func(T) ([]driver.Request, []driver.Answer)) {
	store, ok := g.store.(driver.Settler)
	if !ok || out.late == nil || first.Within == 0 || !first.MaySettle {
		return
	}
	out.late.ends(func(value T, err error) {
		if err != nil {
			return
		}
		reqs, late := booked(value)
		if !admitted(late) {
			return
		}
		for i, req := range reqs[:min(len(reqs), len(late))] {
			set := driver.Settlement{Request: req, At: late[i].At, Delay: late[i].Delay, Source: late[i].Source}
			askWith(context.WithoutCancel(ctx), g, g.of(req.Key, req.Policy), g.budget, false, nil, nil, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, store.Settle(ctx, set)
			})
		}
	})
}
