package driver

import "fmt"

// A Source says where an answer came from.
type Source uint8

// Sources of an answer.
const (
	FromStore  Source = iota // the store decided
	FromCache                // an earlier refusal of the store still holds
	FromLease                // this process decided, from units that the store had leased to it
	FromOwn                  // this region decided within its own share: see package lease
	FromLocal                // the store is unavailable, and this process decided within its share
	FromPolicy               // the store is unavailable, and nothing was counted
)

var sourceNames = [...]string{FromStore: "store", FromCache: "cache", FromLease: "lease", FromOwn: "own", FromLocal: "local", FromPolicy: "policy"}

// String returns "store", "cache", "lease", "own", "local" or "policy".
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "unknown"
}

// A Status is one limit's part of an answer. Times are microseconds from the instant of the decision.
type Status struct {
	Remaining int64 // units left, never negative
	Retry     int64 // until this call fits, if no other call comes; 0 when it fits now
	Release   int64 // until Remaining grows; 0 when all units remain
	Reset     int64 // until every unit is free; 0 when none is in use
}

// An Answer is a store's answer to one request. It is a value: it can be kept and shared.
//
// An Answer is copied several times per call, so its size is a multiple of 16 bytes: other sizes are copied with overlapping writes.
type Answer struct {
	// Refusals has bit i set when limit i of the policy refused the call.
	Refusals uint64
	// Source says where the answer came from.
	Source Source
	// Firm reports that a refusal holds until the retry time has passed, because no charge that counts can still
	// be settled. Only a reset, a reward or a higher limit makes room earlier. A store that does not know leaves Firm false.
	Firm bool
	// Blocked reports that the subject is blocked: see [Block]. Each limit refuses until the block ends.
	Blocked bool
	limits  int32 // the number of statuses
	// At is the store's clock when it decided, or the later instant at which a booking was charged.
	At int64
	// Delay is the time from the decision to At, in microseconds: zero unless the request was booked. The caller starts
	// once Delay has passed. Remaining is then as of At; the times of the statuses are from the decision, as always.
	Delay int64
	// Charged is how many units a Partial request was charged, or a [GiveBack] gave back. It is zero for every other request.
	Charged int64
	// Cause is nil if the store decided, now or before. Otherwise it is why the store did not.
	Cause error

	few  [2]Status          // the statuses, which need no allocation
	many *[MaxLimits]Status // set when there are more; never modified afterwards
}

// Set fills an answer in. At is the store's clock; bit i of refusals is set when limit i refused; statuses has one element per limit, at
// most MaxLimits, and is copied. The other fields stay as they are.
func (a *Answer) Set(at int64, refusals uint64, statuses []Status) {
	a.At, a.Refusals, a.limits = at, refusals, int32(len(statuses))
	a.many = nil
	if copy(a.few[:], statuses) < len(statuses) {
		a.many = new([MaxLimits]Status)
		copy(a.many[:], statuses)
	}
}

// Check returns an error if the answer cannot belong to a request under the policy. Limiters and decorators check the
// answers of other stores, so that a wrong answer becomes an error that says what the store did wrong.
func (a *Answer) Check(p *Policy) error {
	if n := len(p.Limits); int(a.limits) != n {
		return fmt.Errorf("driver: the store returned %d statuses for a policy with %d limits", a.limits, n)
	} else if a.Refusals>>n != 0 {
		return fmt.Errorf("driver: the store returned refusals %b for a policy with %d limits", a.Refusals, n)
	}
	if a.Delay < 0 || a.Delay > 0 && a.Refusals != 0 {
		return fmt.Errorf("driver: the store returned a delay of %d µs with the refusals %b", a.Delay, a.Refusals)
	}
	for i, s := range a.Statuses() {
		if s.Remaining|s.Retry|s.Release|s.Reset < 0 {
			return fmt.Errorf("driver: the store returned a negative number for limit %d: %+v", i, s)
		}
	}
	return nil
}

// Allowed reports whether the request was admitted.
func (a *Answer) Allowed() bool { return a.Refusals == 0 }

// Statuses returns the status of each limit, in the policy's order. The caller must not change them. Up to two share the answer's memory.
func (a *Answer) Statuses() []Status {
	if a.many != nil {
		return a.many[:min(a.limits, MaxLimits)]
	}
	return a.few[:min(a.limits, 2)]
}

// Remaining returns how many units are left after the call: the fewest of all limits.
func (a *Answer) Remaining() int64 {
	remaining := int64(MaxUnits)
	for _, s := range a.Statuses() {
		remaining = min(remaining, s.Remaining)
	}
	return remaining
}

// Retry returns the time after which a refused request is admitted if no other call comes, in microseconds; zero if it was admitted.
func (a *Answer) Retry() (retry int64) {
	if a.Refusals == 0 {
		return 0
	}
	for _, s := range a.Statuses() {
		retry = max(retry, s.Retry)
	}
	return retry
}
