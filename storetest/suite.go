// Package storetest is the conformance suite for every [driver.Store], decorators included: call [Run] from a
// test with a harness over the store. A case that fails reports the promise that the store broke.
//
// The harness of a store has a clock that the suite moves, so that no case waits. If the clock is a server's, the
// harness uses a build that takes the time as an argument, as the tests of redisstore do.
//
// Tests of a program that uses a store need [Faulty], a store that fails, hangs, is slow or refuses on demand.
package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A Harness is an empty store with a clock that the suite moves.
type Harness struct {
	// Store is the store under test. The suite tests its powers, too, but not leases, which only stores of Sash keep.
	Store driver.Store
	// Now returns the time of the store's clock, which stands still between calls of Advance.
	Now func() time.Time
	// Advance moves the store's clock in whole microseconds, back if d is negative.
	Advance func(d time.Duration)
}

// Run runs every case over each of the algorithms, or over all algorithms if none are given. It calls newHarness once
// per case; a harness cleans up with the t of its case.
func Run(t *testing.T, newHarness func(t *testing.T) Harness, algorithms ...sash.Algorithm) {
	if len(algorithms) == 0 {
		algorithms = sash.Algorithms()
	}
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			for _, c := range cases {
				if c.only != nil && !c.only(algorithm) {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					h := newHarness(t)
					s := &suite{T: t, Harness: h, algorithm: algorithm, algorithms: algorithms, promise: c.promise}
					c.run(s)
				})
			}
		})
	}
}

// A testCase shows one promise of a store.
type testCase struct {
	name    string
	promise string                    // the promise that a failing store breaks
	only    func(sash.Algorithm) bool // nil means all
	run     func(*suite)
}

var cases = slices.Concat(scriptCases, waitingCases, batchCases, randomCases, concurrentCases)

const window = 10 * time.Second

func exact(a sash.Algorithm) bool { return a.Exact() }

func calendar(a sash.Algorithm) bool { return a.Exact() || a == sash.FixedWindow }

// resolution is the step of the suite's sliding buckets. It does not divide an hour, so a step can span a boundary
// of the calendar.
const resolution = 73 * time.Millisecond

// A suite is one case on one store.
type suite struct {
	*testing.T
	Harness
	algorithm  sash.Algorithm
	algorithms []sash.Algorithm // all that the store is tested with
	promise    string
}

func (s *suite) needs(power driver.Powers) {
	s.Helper()
	if s.Store.Powers()&power != power {
		s.Skip("the store does not have the power")
	}
}

// do has the store carry out operations, and returns them with their answers.
func (s *suite) do(ops ...driver.Op) ([]driver.Op, error) {
	b := driver.Batch{Ops: ops}
	return ops, b.Do(s.Context(), s.Store)
}

// cool has the store begin a cool-down, and returns the one that the key has.
func (s *suite) cool(key string, begin driver.CoolDown) (driver.CoolDown, error) {
	req := driver.Request{Key: key, Policy: new(driver.Policy)}
	ops, err := s.do(driver.Op{Kind: driver.Cool, Settlement: driver.Settlement{Request: req}, CoolDown: begin})
	return ops[0].CoolDown, err
}

// broken fails and ends the case, with the store's behaviour and the promise that it broke.
func (s *suite) broken(format string, args ...any) {
	s.Helper()
	s.Fatalf("%s\nbroken: %s", fmt.Sprintf(format, args...), s.promise)
}

func options(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = resolution
	}
	return opts
}

func (s *suite) limiter(limits ...sash.Limit) *sash.Limiter {
	s.Helper()
	return s.limiterWith(options(s.algorithm), limits...)
}

func (s *suite) limiterWith(opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	s.Helper()
	l, err := sash.New(s.Store, opts, limits...)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *suite) allow(l *sash.Limiter, key string, cost int64) sash.Result {
	s.Helper()
	res, err := l.AllowN(s.Context(), key, cost)
	if err != nil {
		s.Fatalf("AllowN(%q, %d): %v", key, cost, err)
	}
	return res
}

func (s *suite) peek(l *sash.Limiter, key string) sash.Result {
	s.Helper()
	res, err := l.Peek(s.Context(), key)
	if err != nil {
		s.Fatalf("Peek(%q): %v", key, err)
	}
	return res
}

// fill charges a subject, and fails the test if there is no room.
func (s *suite) fill(l *sash.Limiter, key string, cost int64) {
	s.Helper()
	if res := s.allow(l, key, cost); !res.Allowed {
		s.broken("%d units were refused although there is room: %d remain", cost, res.Remaining)
	}
}

func (s *suite) align(d time.Duration) {
	s.Advance(d - time.Duration(s.Now().UnixMicro()%d.Microseconds())*time.Microsecond)
}
