package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.com/sash/driver"
)

// Probe finds out whether the store works when nobody calls it, for a health check or after a start. It asks each part
// that no call has reached since the last Probe, as a caller's Allow would, because a store that cannot write still
// answers Peek: State, Stats, OnChange and OnError follow. It charges subjects of its own, whose windows last a second.
// A part that fails is asked again until it has answered or is down, which takes Budget + Blip, or longer while this
// process is late. A part that is down is asked once its pause is over. The error is that of a part that does not work,
// or the context's.
//
// The package has no goroutine that calls it. Call it every second or so; calls may overlap.
func (s *Store) Probe(ctx context.Context) error {
	errs := make([]error, len(s.breakers))
	var group sync.WaitGroup
	for i, key := range s.probeKeys() {
		if b := &s.breakers[i]; key != "" && b.idle() {
			group.Go(func() { errs[i] = s.probe(ctx, b, key) })
		}
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// probe asks a part until its state is certain: every Blip / 4, as many calls at a time as take a store down.
func (s *Store) probe(ctx context.Context, b *breaker, key string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := driver.Request{Key: key, Policy: probed, Cost: 1}
	ended, underWay := make(chan outcome, fewestFailures), 0
	call := func() {
		underWay++
		go func() {
			ended <- s.ask(ctx, question{breaker: b, patience: s.budget, ask: func(ctx context.Context) (decision, error) {
				answer, err := s.store.Decide(ctx, req)
				return decision{answers: []driver.Answer{answer}}, err
			}})
		}()
	}
	next := time.NewTicker(max(time.Millisecond, b.blip/(fewestFailures-1)))
	defer next.Stop()
	before := b.answers.Load()
	call()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
			if underWay == 0 || underWay < fewestFailures && b.now() == Up {
				call()
			}
		case out := <-ended:
			underWay--
			now := b.answers.Load()
			b.probed.Store(now)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case !out.failed, now > before:
				return nil
			case b.now() != Up:
				return out.err
			}
		}
	}
}

// probed is the policy of probes. It refuses none, so that each of them writes, and no cache answers it.
var probed = &driver.Policy{Limits: []driver.Limit{{Units: 1e9, Window: int64(time.Second / time.Microsecond)}}}

// probeKeys returns a subject of each part, or "" for a part that has none of many.
func (g *guard) probeKeys() []string {
	g.findKeys.Do(func() {
		g.keys = make([]string, len(g.breakers))
		left := len(g.keys)
		for i := 0; left > 0 && i < 1000*len(g.keys); i++ {
			key := fmt.Sprint("probe ", i)
			if at := g.index(key, probed); g.keys[at] == "" {
				g.keys[at] = key
				left--
			}
		}
	})
	return g.keys
}
