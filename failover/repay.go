package failover

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"example.com/sash/driver"
)

// owe records local admissions, which are written to the store when it is back. While the store may still charge the call
// itself, owe waits in the background for the outcome. A call with an ID is written in any case: the store charges an ID once.
func (g *guard) owe(owed []driver.Op, out *outcome) {
	for _, op := range owed {
		b := g.owed(op.Key, op.Policy)
		if op.ID != "" || out.kind != Unknown {
			b.add(op.ID, op.Request, op.Answer.At, op.Answer.Delay)
		}
		if out.kind != Unknown {
			continue
		}
		d := b.call(op.ID, op.Request, op.Answer.At, op.Answer.Delay)
		out.pending.ends(func(done *driver.Batch, err error) {
			switch i := at(done.Ops, op.Key); {
			case err == nil && i >= 0 && done.Charged(i) > 0: // do not charge it again
				b.land(d, charged)
			case err == nil || answers(err) || g.kind(err) != Unknown:
				b.land(d, uncharged)
			default:
				b.land(d, unknown)
			}
			b.end(d)
		})
	}
}

// repay writes the backlog of a part, one account at a time, until it is empty. Each round begins with a pause and a
// look, and ends with the first failure. So a store that hangs gets no charge whose fate is unknown, and a store that
// rejects only these writes gets one a round.
func (g *guard) repay(b *backlog, store *breaker, done chan<- struct{}) {
	defer close(done)
	pause, works := firstPause, false
	for g.rest(store, pause) {
		of, policy, wait := b.next()
		switch {
		case policy == nil && wait == 0:
			return
		case policy == nil: // another debt may become due sooner, or Close be called
			pause, works = max(time.Millisecond, min(wait, firstPause)), false
			continue
		}
		if works = (works || g.look(store, of.key, policy)) && g.pay(b, store, of); works {
			pause = 0
		} else {
			pause = min(longestPause, max(firstPause, 2*pause))
		}
	}
	b.abandon()
}

// rest waits for a pause and until the breaker lets a call through. It reports false once Close does not wait any longer.
func (g *guard) rest(store *breaker, pause time.Duration) bool {
	over := g.local.over
	for wait := store.ready(pause); wait > 0 && over.Err() == nil; wait = store.ready(0) {
		select {
		case <-over.Done():
		case <-time.After(wait):
		}
	}
	return over.Err() == nil
}

// pay writes what an account owes, and reports whether the store worked. A write has an ID if the store remembers IDs, so a
// write that may have been charged can be repeated. A debt that the store rejects is lost, because it would fail every time.
func (g *guard) pay(b *backlog, store *breaker, of account) bool {
	d := b.claim(of)
	if d == nil { // it was forgotten, or has left
		return true
	}
	if d.began != 0 && time.Since(time.UnixMicro(d.began)) > driver.RepeatTime-longest(patientBudgets*g.budget) { // the store may have forgotten the ID
		b.land(d, unknown)
		b.end(d)
		return true
	}
	repeats := g.store.Powers()&driver.CanID != 0
	if d.id = of.id; repeats && d.id == "" {
		d.id = rand.Text()
	}
	req := driver.Request{Key: of.key, Cost: d.cost, Policy: holding(d.policy, d.cost)}
	sent := time.Now().UnixMicro()
	out := g.single(context.Background(), store, true, driver.Settlement{Request: req, ID: d.id})
	switch {
	case !out.failed && out.err == nil:
		b.written.Add(d.cost)
		b.land(d, charged)
	case out.failed && out.kind == Unsent && of.id == "": // also if too many calls are under way
		b.land(d, uncharged)
	case out.failed && out.kind != Misconfigured && repeats:
		b.mu.Lock()
		d.began = cmp.Or(d.began, sent)
		b.mu.Unlock()
		b.land(d, repeated)
	case out.failed && out.kind == Unknown:
		b.land(d, unknown)
	default:
		b.land(d, rejected)
	}
	if out.pending == nil {
		b.end(d)
	} else {
		out.pending.ends(func(*driver.Batch, error) { b.end(d) })
	}
	return !out.failed
}

// look sends the store a call at no cost for a key, and reports whether the store itself answered.
func (g *guard) look(store *breaker, key string, policy *driver.Policy) bool {
	req := driver.Request{Key: key, Policy: policy}
	out := g.single(context.Background(), store, true, driver.Settlement{Request: req})
	return !out.failed && (out.err != nil || fromStore(out.batch))
}

// single has the store decide one call. One that yields leaves the places among the calls under way to callers.
func (g *guard) single(ctx context.Context, store *breaker, yields bool, call driver.Settlement) outcome {
	b := &driver.Batch{Ops: []driver.Op{{Settlement: call}}}
	return g.ask(ctx, question{breaker: store, patience: g.budget, yields: yields, batch: b})
}

// holding returns a policy that charges units whether or not there is room, even more units than a limit has.
func holding(policy *driver.Policy, units int64) *driver.Policy {
	holds := *forced(policy)
	holds.Limits = slices.Clone(policy.Limits)
	for i := range holds.Limits {
		holds.Limits[i].Units = max(units, holds.Limits[i].Units)
	}
	return &holds
}

// Close writes the units that were admitted locally and not written yet. It tries until the context ends, and returns within the budget
// after that, so give it a deadline of a few seconds. Units that it could not write are lost: [Stats] counts them, and the error says how
// many. The store still decides after Close, but later local admissions are lost, and this process's share no longer counts bookings of
// the store. A program that ends without Close loses the backlog.
func (s *Store) Close(ctx context.Context) error {
	l := s.local
	if l == nil {
		return nil
	}
	l.closed.Store(true)
	lost, doubtful := l.lost.Load(), l.doubtful.Load()
	defer context.AfterFunc(ctx, l.end)()
	for i := range l.backlogs {
		if done := l.backlogs[i].close(); done != nil {
			<-done
		}
	}
	if lost, doubtful = l.lost.Load()-lost, l.doubtful.Load()-doubtful; lost+doubtful > 0 {
		return fmt.Errorf("failover: of the units admitted locally %d were not written to the store, and %d perhaps", lost, doubtful)
	}
	return nil
}
