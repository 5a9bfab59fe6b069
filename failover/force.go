package failover

import (
	"fmt"
	"time"

	"example.com/sash"
)

// A Forced is a state that an operator has forced.
type Forced struct {
	State State     // Up or Down
	Since time.Time // when it was forced
	Until time.Time // zero is until Lift
}

// Force overrules the breakers of all parts. With Down no decision calls the store, and the failure mode answers at once.
// With Up every decision does, whatever the store answered before; an answer brings its part up, and failures do not take
// one down. The zero time forces until Lift. Any other state is an error. Calls under way go on, and do not count for the
// breakers. Force and Lift do not call OnChange, and nothing calls it with another state than that forced.
func (s *Store) Force(state State, until time.Time) error {
	if state != Up && state != Down {
		return fmt.Errorf("failover: a store cannot be forced to be %v: use Up or Down", state)
	}
	s.forced.Store(&Forced{state, time.Now(), until})
	for i := range s.breakers {
		s.breakers[i].renew()
	}
	return nil
}

// Lift ends what Force began. The breakers decide again: a part is as it was, or up if it answered while Up was forced.
func (s *Store) Lift() { s.forced.Store(nil) }

// Forced returns what is forced now, and whether anything is.
func (s *Store) Forced() (Forced, bool) { return s.force() }

func (g *guard) force() (Forced, bool) {
	f := g.forced.Load()
	if f == nil || !f.Until.IsZero() && !time.Now().Before(f.Until) {
		return Forced{}, false
	}
	return *f, true
}

// state returns the state of a part as it counts for calls.
func (g *guard) state(b *breaker) State {
	if f, ok := g.force(); ok {
		return f.State
	}
	return b.now()
}

// let admits a call to the store as enter does, unless a state is forced.
func (g *guard) let(b *breaker) (ticket, error) {
	switch f, ok := g.force(); {
	case !ok:
		return g.enter(b)
	case f.State == Down:
		return ticket{}, errForced
	}
	return ticket{epoch: b.epoch.Load(), forced: true}, nil
}

var errForced error = &sash.StoreError{Err: fmt.Errorf("%w: an operator forced it", ErrDown)}
