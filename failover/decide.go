package failover

import (
	"context"
	"fmt"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// Do implements [driver.Store]. While the store is unavailable, the failure mode answers charges: of several subjects the
// strictest mode counts. Any other operation is an error in every mode then.
//
// Mode Local remembers the ID of a call too: it charges the call locally once, and writes it to the store with the ID later. So a call
// that is repeated after a failure is charged to the store once, wherever it was admitted, and it is never [Stats.Doubtful] if the
// store is back within [driver.RepeatTime]. Mode Open ignores IDs. A repeated call is decided anew while the store is unavailable if it
// costs more than this process's share or another process received it first, and by the store if it refused the write.
//
// Of several subjects of which one is chosen, the failure mode answers for one after the other, until it admits one now: it does not
// compare their room. If the store has charged another subject by then, that charge stays.
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

// A recaller is a cache: it knows some answers already, such as refusals that still hold.
type recaller interface {
	// Recall sets the answer that Do would give without asking another store, or returns false if there is none. It does not block.
	Recall(op *driver.Op) bool
}

// recall sets an answer that the store knows already while it is up: such a call needs no goroutine, no place among those under
// way, and no time. A panic of the store is left to the call itself.
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

// pass has the store carry out a batch that it does not answer in its place, once some channels are closed.
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
		if op.ID == "" { // a call with an ID may be repeated, and then gets its place
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
		if err := try(i, min(b.Ops[i].Within, 1)); err != nil || answer.Allowed() { // now: the next may have room
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

// instead answers charges in place of the store. It returns those that were charged locally, at what they cost: the store is owed them.
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

// forgo gives back what the store books after the failure mode has answered otherwise: no caller knows of that place, and
// those behind it would wait for nothing. A place that is owed is charged locally, too.
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

// corrects reports whether an operation is about a charge that was made before, where its Source says.
func corrects(op *driver.Op) bool { return op.Kind == driver.Settle || op.Kind == driver.Extend }

func at(ops []driver.Op, key string) int {
	return slices.IndexFunc(ops, func(op driver.Op) bool { return op.Key == key })
}

// correct has charges corrected where they were made. Mode Open charged nothing, so there is nothing to correct. A charge that
// this process made in the store's place cannot be extended, because it may be on its way to the store.
//
// Units that are given back stay charged in this process's share, which does not know which charge they were.
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
