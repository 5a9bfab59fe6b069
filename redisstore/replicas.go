package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// DefaultReplicaTimeout is how long an admission waits for replicas when Options do not say. With the script it
// fits into failover's default budget of 50 ms: a shortfall is then told as one, and not as no answer in time. An
// idle Redis looks only 10 times a second for what has waited long enough, so it can take 100 ms longer: raise its
// setting hz to 100 where the reason of an error matters. The call was charged in either case.
const DefaultReplicaTimeout = 25 * time.Millisecond

// A Waiter is a Scripter that can wait for replicas, which Options.Replicas needs. The adapters of this
// project are.
type Waiter interface {
	Scripter
	// RunWait runs a script as Run does. When wait.For says so of its reply, it then sends WAIT on the
	// connection that the script was sent on, for WAIT knows of no other's writes, and returns how many
	// replicas have confirmed. Neither is sent again when it may have run. When the script has run, the reply
	// is what it answered, also beside an error of WAIT.
	RunWait(ctx context.Context, script *Script, keys []string, arg string, wait Wait) (reply string, confirmed int64, err error)
}

// A Wait is what a Waiter waits for.
type Wait struct {
	Replicas int
	Timeout  time.Duration           // whole milliseconds, at least one
	For      func(reply string) bool // whether to wait at all
}

// charges reports whether any request asks for units.
func charges(reqs []driver.Request) bool {
	return slices.ContainsFunc(reqs, func(r driver.Request) bool { return r.Cost > 0 })
}

// run runs the script of a decision. What was admitted is on as many replicas as it has to be, or the
// error is a *sash.StoreError.
func (s *Store) run(ctx context.Context, reqs []driver.Request, script *Script, keys []string, arg string) (string, error) {
	if s.wait.Replicas <= 0 || !charges(reqs) {
		return s.scripts.Run(ctx, script, keys, arg)
	}
	scripts, ok := s.scripts.(Waiter)
	if !ok {
		return "", fmt.Errorf("%w: waiting for replicas, by %T", driver.ErrUnsupported, s.scripts)
	}
	reply, confirmed, err := scripts.RunWait(ctx, script, keys, arg, s.wait)
	switch {
	case err != nil && reply != "":
		err = &waitError{err}
	case err == nil && s.wait.For(reply) && confirmed < int64(s.wait.Replicas):
		err = &sash.StoreError{Err: fmt.Errorf("redisstore: the call was charged, but %d of %d replicas confirmed it within %v",
			confirmed, s.wait.Replicas, s.wait.Timeout)}
	}
	return reply, err
}

// A waitError is a WAIT that failed after the script had run. It is the caller's context that ended, or nothing
// else: what the server said of WAIT must not pass for what it says of a call that it did not charge.
type waitError struct{ err error }

func (e *waitError) Error() string {
	return "redisstore: the call was charged, but replicas were not waited for: " + e.err.Error()
}

func (e *waitError) Unwrap() error {
	for _, ended := range [...]error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(e.err, ended) {
			return ended
		}
	}
	return nil
}

// admitted reports whether a reply admits: no limit refused.
func admitted(reply string) bool { return strings.HasPrefix(reply, "\x00\x00\x00\x00\x00\x00\x00\x00") }

func (o *Options) wait() Wait {
	w := Wait{Replicas: o.Replicas, Timeout: o.ReplicaTimeout, For: admitted}
	if w.Timeout <= 0 {
		w.Timeout = DefaultReplicaTimeout
	}
	w.Timeout = (w.Timeout + time.Millisecond - 1).Truncate(time.Millisecond)
	return w
}
