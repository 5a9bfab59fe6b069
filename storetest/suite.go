package storetest

import (
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A Harness is an empty store with a clock that the suite moves.
type Harness struct {
	// Store is the store under test. What it offers beyond driver.Store is tested too.
	Store driver.Store
	// Now returns what the store's clock shows. It stands still between calls of Advance.
	Now func() time.Time
	// Advance moves the store's clock, in whole microseconds: back, when d is negative.
	Advance func(d time.Duration)
}

// Run runs every case over every algorithm. It calls newHarness once a case; what a harness starts it ends
// with the case's t.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, algorithm := range sash.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			for _, c := range cases {
				if c.only != nil && !c.only(algorithm) {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					h := newHarness(t)
					s := &suite{T: t, Harness: h, algorithm: algorithm, promise: c.promise}
					c.run(s)
				})
			}
		})
	}
}

// A testCase shows one promise of a store.
type testCase struct {
	name    string
	promise string                    // what a store that fails the case has broken
	only    func(sash.Algorithm) bool // nil is all
	run     func(*suite)
}

var cases = concat(windowCases, limitCases, subjectCases, settleCases, onceCases, clockCases, walkCases, coolDownCases)

func concat(all ...[]testCase) []testCase {
	var joined []testCase
	for _, some := range all {
		joined = append(joined, some...)
	}
	return joined
}

func exact(a sash.Algorithm) bool { return a.Exact() }

func calendar(a sash.Algorithm) bool { return a.Exact() || a == sash.FixedWindow }

// resolution is the step of the suite's sliding buckets. It does not divide an hour, so that a step can
// reach over a boundary of the calendar.
const resolution = 73 * time.Millisecond

// A suite is one case on one store.
type suite struct {
	*testing.T
	Harness
	algorithm sash.Algorithm
	promise   string
}

// broken ends the case: what the store did, and the promise that it broke.
func (s *suite) broken(format string, args ...any) {
	s.Helper()
	s.Fatalf("%s\nbroken: %s", fmt.Sprintf(format, args...), s.promise)
}

func (s *suite) options() *sash.Options {
	opts := &sash.Options{Algorithm: s.algorithm}
	if s.algorithm == sash.SlidingBuckets {
		opts.Resolution = resolution
	}
	return opts
}

func (s *suite) limiter(limits ...sash.Limit) *sash.Limiter {
	s.Helper()
	return s.limiterWith(s.options(), limits...)
}

func (s *suite) limiterWith(opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	s.Helper()
	l, err := sash.New(s.Store, opts, limits...)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *suite) ask(l *sash.Limiter, key string, cost int64) sash.Result {
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

// fill charges a subject and fails the test when there is no room.
func (s *suite) fill(l *sash.Limiter, key string, cost int64) {
	s.Helper()
	if res := s.ask(l, key, cost); !res.Allowed {
		s.broken("%d units were refused where there is room; %d are left", cost, res.Remaining)
	}
}

// together asks several subjects at once.
func (s *suite) together(l *sash.Limiter, subjects ...sash.Subject) sash.Result {
	s.Helper()
	res, err := l.AllowAll(s.Context(), subjects...)
	if err != nil {
		s.Fatalf("AllowAll: %v", err)
	}
	return res
}

// align moves the clock to a multiple of d since the epoch.
func (s *suite) align(d time.Duration) {
	s.Advance(d - time.Duration(s.Now().UnixMicro()%d.Microseconds())*time.Microsecond)
}
