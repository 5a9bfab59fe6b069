package rivals

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash/internal/bench/exactness"
	"example.com/sash/internal/bench/load"
)

// A contender decides by one algorithm of one library.
type contender struct {
	name, version, runtime string

	child   *child
	figures []load.Figures // by workload
	count   exactness.Count
}

// ask makes one decision.
func (c *contender) ask(ctx context.Context, key string, units int64, window time.Duration) (bool, error) {
	a, err := c.child.call(ctx, request{Op: "ask", Contender: c.name, Key: key, Units: units, WindowMS: window.Milliseconds()})
	return err == nil && *a.Allowed, err
}

// key returns a key of this contender alone. sash serve keeps a refusal for a second, even if Redis is emptied, and all
// contenders over RESP ask it.
func (c *contender) key(name string) string { return name + ":" + c.name }

// check reports whether the contender enforces a limit: figures compare only if all do the same work. On a busy machine a
// service may run out of the time that it has for a decision, so a contender without an answer is asked again.
func (c *contender) check(ctx context.Context) (err error) {
	const calls, tries = checkUnits + 10, 3
	admitted := 0
	for try := range tries {
		admitted, err = c.admits(ctx, c.key(fmt.Sprint("check ", try)), calls)
		if err == nil || errors.Is(err, errBroken) {
			break
		}
	}
	if err == nil && admitted != checkUnits {
		err = fmt.Errorf("it admits %d of %d calls under a limit of %d an hour", admitted, calls, checkUnits)
	}
	return err
}

// admits returns how many of so many calls on a key are admitted, or the first error.
func (c *contender) admits(ctx context.Context, key string, calls int) (admitted int, err error) {
	for range calls {
		allowed, err := c.ask(ctx, key, checkUnits, checkWindow)
		if err != nil {
			return 0, err
		}
		if allowed {
			admitted++
		}
	}
	return admitted, nil
}

// load makes decisions under a workload for a time. None may be refused: every workload has room.
func (c *contender) load(ctx context.Context, w workload, d time.Duration) (answer, error) {
	a, err := c.child.call(ctx, request{
		Op: "load", Contender: c.name, Prefix: "bench", Keys: w.keys, Callers: w.callers,
		Units: w.units, WindowMS: w.window.Milliseconds(), ForMS: d.Milliseconds(),
	})
	if err == nil && a.Admitted != a.Decisions {
		err = fmt.Errorf("it refuses %d of %d calls although the limit has room", a.Decisions-a.Admitted, a.Decisions)
	}
	return a, err
}

// outcome returns the answer to a load as one round, in which Redis used so many microseconds of processor time.
func (a answer) outcome(processor float64) load.Outcome {
	return load.Outcome{
		Decisions: a.Decisions, Failed: a.Errors, PerSecond: float64(a.Decisions) / a.MS * 1000,
		P50: a.P50, P99: a.P99, Used: []float64{processor / float64(a.Decisions+a.Errors)},
	}
}
