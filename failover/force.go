package failover

import (
	"fmt"
	"time"

	"example.com/sash"
)

// A Forced is a state that an operator has forced.
type Forced struct {
	State State     // Up or Down; otherwise nothing is forced
	Until time.Time // zero is until Lift
}

// Force overrules the breakers of all parts. With Down no call goes to the store, and the failure mode answers at once.
// With Up every call goes to the store, whatever it answered before. The zero time forces until Lift. Any other state is
// an error. A call under way is not affected, and OnChange is not called.
func (s *Store) Force(state State, until time.Time) error {
	if state != Up && state != Down {
		return fmt.Errorf("failover: a store cannot be forced to be %v: use Up or Down", state)
	}
	s.forced.Store(&Forced{state, until})
	return nil
}

// Lift ends what Force began: the breakers decide again, by what the last calls found.
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
		return 0, errForced
	}
	return 0, nil
}

var errForced error = &sash.StoreError{Err: fmt.Errorf("%w: an operator forced it", ErrDown)}
