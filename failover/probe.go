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
	for i, key := range s.keys() {
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

// probe asks a part until its state is certain: as many calls at a time as take a store down, one after the other within
// Blip.
func (s *Store) probe(ctx context.Context, b *breaker, key string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := driver.Request{Key: key, Policy: probed, Cost: 1}
	step, before := max(time.Millisecond, b.blip/(fewestFailures-1)), b.answers.Load()
	ended := make(chan error, fewestFailures)
	for i := range fewestFailures {
		go func() {
			for wait := step * time.Duration(i); ; wait = fewestFailures * step {
				select {
				case <-ctx.Done():
					ended <- ctx.Err()
					return
				case <-time.After(wait):
				}
				if i > 0 && b.now() != Up { // one call at a time tests a store that is down
					continue
				}
				out := s.single(ctx, b, false, func(ctx context.Context) (driver.Answer, error) { return s.store.Decide(ctx, req) })
				switch now := b.answers.Load(); {
				case ctx.Err() != nil:
				case !out.failed || now > before:
					ended <- nil
					return
				case b.now() != Up:
					ended <- out.err
					return
				}
			}
		}()
	}
	err := <-ended
	b.probed.Store(b.answers.Load())
	return err
}

// probed is the policy of probes. It refuses none, so that each of them writes, and no cache answers it.
var probed = &driver.Policy{Limits: []driver.Limit{{Units: 1e9, Window: int64(time.Second / time.Microsecond)}}}

// probeKeys returns a subject of each part, or "" for a part that has none of many.
func (g *guard) probeKeys() []string {
	keys := make([]string, len(g.breakers))
	for i, left := 0, len(keys); left > 0 && i < 1000*len(keys); i++ {
		key := fmt.Sprint("probe ", i)
		if at := g.index(key, probed); keys[at] == "" {
			keys[at] = key
			left--
		}
	}
	return keys
}
