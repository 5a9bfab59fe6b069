package failover

import (
	"context"
	"fmt"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// Do implements [driver.Store]. While the store is unavailable, the failure mode answers charges: for several subjects, the
// strictest mode counts. Any other operation is then an error in every mode.
//
// Mode Local remembers the ID of a call too: it charges the call locally once, and later writes it to the store with the ID. So a call
// that is repeated after a failure is charged to the store once, wherever it was admitted, and is never [Stats.Doubtful] if the store
// is back within [driver.RepeatTime]. Mode Open ignores IDs. While the store is unavailable, a repeated call is decided anew if it costs
// more than this process's share or another process received it first. If the store refused the write, it decides the call anew.
//
// In mode [driver.Any], the failure mode answers for one subject after the other, until it admits one now. It does not compare their
// room. If the store has charged another subject by then, that charge stays.
func (s *Store) Do(ctx context.Context, b *driver.Batch) error {
	op := &b.Ops[0]
	switch {
	case len(b.Ops) == 1 && s.recall(ctx, op):
		b.Chosen = 0
		s.mirror(ctx, b)
		return nil
	case corrects(op) && !slices.ContainsFunc(b.Ops[1:], func(other driver.Op) bool { return !corrects(&other) }):
		return s.correct(ctx, b)
	case b.Mode == driver.Each && len(b.Ops) > 1:
		for i := range b.Ops {
			b.Ops[i].Err = s.Do(ctx, &driver.Batch{Ops: b.Ops[i : i+1]})
		}
		return nil
	case op.Kind == driver.Forget:
		return s.forget(ctx, b)
	case op.Kind != driver.Charge:
		return s.pass(ctx, b, nil)
	}
	return s.decide(ctx, b)
}

// A recaller is a cache that knows some answers already, such as refusals that still hold.
type recaller interface {
	// Recall sets the answer that Do would give without asking another store, or returns false if there is none. It does not block.
	Recall(op *driver.Op) bool
}

// recall sets an answer that the store already knows, if the store is up. Such a call needs no goroutine, no place among the calls
// in flight, and no time. If the store panics, recall returns false, and the call itself meets the panic.
func (s *Store) recall(ctx context.Context, op *driver.Op) (ok bool) {
	cache, ok := s.store.(recaller)
	if !ok || ctx.Err() != nil || s.part(op.Request).now() != Up {
		return false
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return cache.Recall(op)
}

// pass has the store carry out a batch that no failure mode answers, once the channels of after are closed.
func (s *Store) pass(ctx context.Context, b *driver.Batch, after []<-chan struct{}) error {
	out := s.ask(ctx, question{breaker: s.part(b.Ops[0].Request), patience: s.budget, batch: b.Clone(), after: after})
	if out.err != nil { // the store may still be at it
		return out.err
	}
	b.Take(out.batch)
	s.mirror(ctx, b)
	return nil
}

func (s *Store) decide(ctx context.Context, b *driver.Batch) error {
	op := &b.Ops[0]
	patience := max(s.budget, min(microseconds(op.Within), patientBudgets*s.budget))
	out := s.ask(ctx, question{breaker: s.part(op.Request), patience: patience, batch: b.Clone()})
	switch {
	case out.failed && b.Mode == driver.Any:
		return s.choose(ctx, b, &out)
	case out.failed:
		owed, err := s.instead(ctx, b, &out)
		if op.ID == "" { // a call with an ID may be repeated, and then gets its booking
			s.forgo(ctx, &out, owed)
		}
		return err
	case out.err != nil:
		s.forgo(ctx, &out, nil)
		return out.err
	}
	b.Take(out.batch)
	s.mirror(ctx, b)
	return nil
}

func (s *Store) choose(ctx context.Context, b *driver.Batch, out *outcome) error {
	var owed []driver.Op
	defer func() { s.forgo(ctx, out, owed) }()
	try := func(i int, within int64) error {
		one := driver.Batch{Ops: slices.Clone(b.Ops[i : i+1])}
		one.Ops[0].Within = within
		of, err := s.instead(ctx, &one, out)
		owed = append(owed, of...)
		b.Chosen, b.Ops[i].Answer = i, one.Ops[0].Answer
		return err
	}
	soonest := 0
	for i := range b.Ops {
		answer := &b.Ops[i].Answer
		if err := try(i, min(b.Ops[i].Within, 1)); err != nil || answer.Allowed() { // only now: the next subject may have room
			return err
		}
		if answer.Retry() < b.Ops[soonest].Answer.Retry() {
			soonest = i
		}
	}
	if within := b.Ops[soonest].Within; within > 0 {
		return try(soonest, within)
	}
	b.Chosen = soonest
	return nil
}

// instead answers charges in place of the store. It returns the charges that were made locally and are owed to the store, at their cost.
func (s *Store) instead(ctx context.Context, b *driver.Batch, out *outcome) (owed []driver.Op, err error) {
	if err = s.answer(ctx, b.Ops, out.err); err != nil {
		return nil, err
	}
	for i, op := range b.Ops {
		if op.Cost = b.Charged(i); op.Cost > 0 && op.Answer.Source == driver.FromLocal {
			owed = append(owed, op)
		}
	}
	s.owe(owed, out)
	return owed, nil
}

// forgo gives back bookings that the store makes after the failure mode has answered: no caller uses such a place, and the
// callers behind it would wait for nothing. It keeps the bookings in owed, because they were also made locally.
func (s *Store) forgo(ctx context.Context, out *outcome, owed []driver.Op) {
	if out.pending == nil {
		return
	}
	out.pending.ends(func(done *driver.Batch, err error) {
		for i := 0; err == nil && i < len(done.Ops); i++ {
			op := &done.Ops[i]
			if op.Within == 0 || !op.MaySettle || done.Charged(i) == 0 || at(owed, op.Key) >= 0 {
				continue
			}
			back := &driver.Batch{Ops: []driver.Op{apart.Undo(op)}}
			_ = s.ask(context.WithoutCancel(ctx), question{breaker: s.part(op.Request), patience: s.budget, batch: back})
		}
	})
}

// corrects reports whether an operation corrects an earlier charge. Its Source says where that charge was made.
func corrects(op *driver.Op) bool { return op.Kind == driver.Settle || op.Kind == driver.Extend }

func at(ops []driver.Op, key string) int {
	return slices.IndexFunc(ops, func(op driver.Op) bool { return op.Key == key })
}

// correct corrects charges where they were made. Mode Open charged nothing, so there is nothing to correct. A charge that this
// process made in the store's place cannot be extended, because it may be on its way to the store.
//
// Units given back to the store stay charged in this process's share, which does not know which of its charges they belong to.
func (s *Store) correct(ctx context.Context, b *driver.Batch) error {
	first := &b.Ops[0]
	if slices.ContainsFunc(b.Ops, func(op driver.Op) bool {
		return op.Source != first.Source || s.part(op.Request) != s.part(first.Request)
	}) {
		return driver.ErrApart
	}
	switch first.Source {
	case driver.FromPolicy:
		for i := range b.Ops {
			b.Ops[i].Answer.At = b.Ops[i].At
		}
		return nil
	case driver.FromLocal:
		if first.Kind != driver.Settle {
			return fmt.Errorf("%w: this process admitted the call in its place", driver.ErrUnsupported)
		}
		return driver.OneByOne(ctx, b, func(ctx context.Context, op *driver.Op) error { return s.settleLocally(ctx, op.Settlement) })
	}
	return s.pass(ctx, b, nil)
}
