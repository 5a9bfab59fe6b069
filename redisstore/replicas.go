package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// DefaultReplicaTimeout is how long an admission waits for replicas by default. Script and wait fit into failover's default budget of
// 50 ms. An idle Redis checks for expired waits only 10 times a second, so a wait can take 100 ms longer, unless its hz is 100.
const DefaultReplicaTimeout = 25 * time.Millisecond

// A Waiter is a Scripter that can wait for replicas, as Options.Replicas requires. goredisstore and rueidisstore have Waiters.
type Waiter interface {
	Scripter
	// RunWait runs a script like Run. If wait.For returns true for its reply, RunWait then sends WAIT on the same connection, because
	// WAIT counts only writes of its own connection, and returns how many replicas have confirmed. It repeats neither if it may have run.
	// If the script has run, RunWait returns its reply, even with an error of WAIT.
	RunWait(ctx context.Context, script *Script, keys []string, arg string, wait Wait) (reply string, confirmed int64, err error)
}

// A Wait is the condition that a Waiter waits for.
type Wait struct {
	Replicas int
	Timeout  time.Duration           // whole milliseconds, at least one
	For      func(reply string) bool // whether to wait at all
}

func charges(ops []driver.Op) bool {
	for i := range ops {
		if ops[i].Cost > 0 {
			return true
		}
	}
	return false
}

// run runs the script of a decision. If too few replicas have confirmed an admission, the error is a *sash.StoreError.
func (s *Store) run(ctx context.Context, ops []driver.Op, script *Script, keys []string, arg string) (string, error) {
	if s.wait.Replicas <= 0 || !charges(ops) {
		return s.send(ctx, script, keys, arg)
	}
	scripts, ok := s.scripts.(Waiter)
	if !ok {
		return "", fmt.Errorf("%w: waiting for replicas, by %T", driver.ErrUnsupported, s.scripts)
	}
	defer s.trips.end(s.trips.begin())
	reply, confirmed, err := scripts.RunWait(ctx, script, keys, arg, s.wait)
	switch {
	case err != nil && reply != "":
		err = &waitError{err}
	case err != nil:
		err = rejected(err)
	case s.wait.For(reply) && confirmed < int64(s.wait.Replicas):
		err = &sash.StoreError{Err: fmt.Errorf("redisstore: the call was charged, but %d of %d replicas confirmed it within %v",
			confirmed, s.wait.Replicas, s.wait.Timeout)}
	}
	return reply, err
}

// send runs a script. Errors about the value of a key are driver.ErrRejected.
func (s *Store) send(ctx context.Context, script *Script, keys []string, arg string) (string, error) {
	defer s.trips.end(s.trips.begin())
	reply, err := s.scripts.Run(ctx, script, keys, arg)
	err = rejected(err)
	if errors.Is(err, context.DeadlineExceeded) {
		if said := s.Silent(remembered); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
	}
	return reply, err
}

// A waitError is a WAIT that failed after the script had run. It wraps at most the context's error: an error of the
// server about WAIT must not look like one about a call that was not charged.
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

// admitted reports whether a reply is an admission: no limit refused.
func admitted(reply string) bool { return len(reply) >= 8 && number(reply)&^repeated == 0 }

func (o *Options) wait() Wait {
	timeout := cmp.Or(max(o.ReplicaTimeout, 0), DefaultReplicaTimeout)
	return Wait{Replicas: o.Replicas, Timeout: (timeout + time.Millisecond - 1).Truncate(time.Millisecond), For: admitted}
}
