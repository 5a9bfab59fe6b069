package failover

import (
	"context"
	"fmt"
	"slices"

	"example.com/sash/driver"
)

// Decide implements [driver.Store].
func (s *Store) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if answer, ok := s.recall(ctx, req); ok {
		s.mirror(ctx, "", decision{[]driver.Request{req}, []driver.Answer{answer}})
		return answer, nil
	}
	return only(s.decide(ctx, "", []driver.Request{req}, func(ctx context.Context) ([]driver.Answer, error) {
		answer, err := s.store.Decide(ctx, req)
		return []driver.Answer{answer}, err
	}))
}

// only returns the answer to a single request.
func only(answers []driver.Answer, err error) (driver.Answer, error) {
	if len(answers) == 0 {
		return driver.Answer{}, err
	}
	return answers[0], err
}

// recall returns an answer that the store knows already while it is up: such a call needs no goroutine, no place among
// those under way, and no time. A panic of the store is left to the call itself.
func (s *Store) recall(ctx context.Context, req driver.Request) (answer driver.Answer, ok bool) {
	recaller, ok := s.store.(driver.Recaller)
	if !ok || ctx.Err() != nil || s.part(req).now() != Up {
		return answer, false
	}
	defer func() {
		if recover() != nil {
			answer, ok = driver.Answer{}, false
		}
	}()
	return recaller.Recall(req)
}

// DecideAll implements [driver.MultiStore]. While the store is unavailable the strictest mode of the requests counts.
func (s *Store) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	return s.decide(ctx, "", reqs, func(ctx context.Context) ([]driver.Answer, error) { return s.next.DecideAll(ctx, reqs) })
}

// DecideOnce implements [driver.Deduplicator]. While the store is unavailable, mode Local remembers the ID too: it
// charges the call locally once, and writes it to the store with the ID later. So a call that is repeated after a
// failure is charged to the store once, wherever it was admitted, and it is never [Stats.Doubtful] if the store is back
// within [driver.RepeatTime]. Mode Open ignores IDs, because it charges nothing.
//
// Calls that cost more than this process's share, or that another process received, are decided anew when they are repeated
// while the store is unavailable. The store decides anew what it refused when the call was written to it.
func (s *Store) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	return only(s.decide(ctx, id, []driver.Request{req}, func(ctx context.Context) ([]driver.Answer, error) {
		answer, err := s.next.DecideOnce(ctx, id, req)
		return []driver.Answer{answer}, err
	}))
}

// DecideAny implements [driver.Chooser]. While the store is unavailable the failure mode answers for one subject after
// the other, in their order, until it admits one now: it does not compare their room. If the store has charged another
// subject by then, that charge stays.
func (s *Store) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	chosen := 0
	out := s.try(ctx, "", reqs, func(ctx context.Context) (decision, error) {
		i, answer, err := s.next.DecideAny(ctx, reqs)
		switch {
		case err != nil:
			return decision{}, err
		case i < 0 || i >= len(reqs):
			return decision{}, fmt.Errorf("failover: the store chose request %d of %d", i, len(reqs))
		}
		chosen = i
		return decision{reqs[i : i+1], []driver.Answer{answer}}, nil
	})
	switch {
	case out.failed:
		return s.choose(ctx, reqs, &out)
	case out.err != nil: // the store may still be choosing
		return 0, driver.Answer{}, out.err
	}
	return chosen, out.answers[0], nil
}

// choose answers for one subject after the other in place of the store.
func (s *Store) choose(ctx context.Context, reqs []driver.Request, out *outcome) (int, driver.Answer, error) {
	var owed []driver.Request
	defer func() { s.forgo(ctx, out, owed) }()
	try := func(req driver.Request) (answer driver.Answer, err error) {
		answers, of, err := s.instead(ctx, "", []driver.Request{req}, out)
		owed = append(owed, of...)
		return only(answers, err)
	}
	soonest, first := 0, driver.Answer{}
	for i, req := range reqs {
		req.Within = min(req.Within, 1) // now: the next may have room
		answer, err := try(req)
		if err != nil || answer.Allowed() {
			return i, answer, err
		}
		if i == 0 || answer.Retry() < first.Retry() {
			soonest, first = i, answer
		}
	}
	if reqs[soonest].Within > 0 {
		answer, err := try(reqs[soonest])
		return soonest, answer, err
	}
	return soonest, first, nil
}

// decide has the store decide requests, or answers in its place. With an ID there is one request.
func (s *Store) decide(
	ctx context.Context, id string, reqs []driver.Request, ask func(context.Context) ([]driver.Answer, error),
) ([]driver.Answer, error) {
	out := s.try(ctx, id, reqs, func(ctx context.Context) (decision, error) {
		answers, err := ask(ctx)
		return decision{reqs, answers}, err
	})
	if !out.failed {
		s.forgo(ctx, &out, nil)
		return out.answers, out.err
	}
	answers, owed, err := s.instead(ctx, id, reqs, &out)
	if id == "" { // a call with an ID may be repeated, and then gets its place
		s.forgo(ctx, &out, owed)
	}
	return answers, err
}

// try has the store decide requests, and charges locally what it charged.
func (s *Store) try(ctx context.Context, id string, reqs []driver.Request, ask func(context.Context) (decision, error)) outcome {
	patience := max(s.budget, min(microseconds(reqs[0].Within), patientBudgets*s.budget))
	out := s.ask(ctx, question{breaker: s.part(reqs[0]), patience: patience, ask: ask})
	if !out.failed && out.err == nil {
		s.mirror(ctx, id, out.decision)
	}
	return out
}

// instead answers requests in place of the store. It returns those that were charged locally, which the store has to count.
func (s *Store) instead(ctx context.Context, id string, reqs []driver.Request, out *outcome) (
	answers []driver.Answer, owed []driver.Request, err error,
) {
	answers, err = s.answer(ctx, id, reqs, out.err)
	if err != nil || answers[0].Source != driver.FromLocal || !admitted(answers) && !reqs[0].Policy.CountRefused {
		return answers, nil, err
	}
	for i, req := range reqs {
		owed = append(owed, charged(req, &answers[i]))
	}
	s.owe(id, owed, answers, out)
	return answers, owed, nil
}

// forgo gives back what the store books after the failure mode has answered otherwise: no caller knows of that place, and
// those behind it would wait for nothing. A place that is owed is charged locally, too.
func (s *Store) forgo(ctx context.Context, out *outcome, owed []driver.Request) {
	if out.late == nil {
		return
	}
	out.late.ends(func(late decision, err error) {
		if err != nil || !admitted(late.answers) {
			return
		}
		for i, req := range late.reqs[:min(len(late.reqs), len(late.answers))] {
			if req.Within == 0 || !req.MaySettle || has(owed, req.Key) {
				continue
			}
			set := driver.Settlement{Request: req, At: late.answers[i].At, Delay: late.answers[i].Delay, Source: late.answers[i].Source}
			_ = s.do(context.WithoutCancel(ctx), s.part(req), func(ctx context.Context) error { return s.next.Settle(ctx, set) })
		}
	})
}

func has(reqs []driver.Request, key string) bool {
	return slices.ContainsFunc(reqs, func(req driver.Request) bool { return req.Key == key })
}

// admitted reports whether a decision admitted all of its subjects.
func admitted(answers []driver.Answer) bool {
	return !slices.ContainsFunc(answers, func(a driver.Answer) bool { return !a.Allowed() })
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

// Books implements [driver.Booker]: it reports whether the store behind it books.
func (s *Store) Books(p *driver.Policy) bool { return driver.CanBook(s.store, p) }
