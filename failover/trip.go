package failover

import "time"

// How many failures take the store down.
const (
	fewestFailures = 5           // in all
	fewestCalls    = 20          // of a run of which a half counts
	longestRun     = time.Second // with answers in between
	blipsIfLate    = 5           // for a failure while this process was late
)

// A run is failures that may take the store down. It begins with a failure and lasts a second, or until the next answer if
// that takes longer. The store goes down at the failure of a run that is
//
//   - at least the fifth, and at least Blip after the first, and
//   - either the store gave no answer in the run, or the run has at least 20 calls and at least half of them failed.
//
// So a store that hangs is down Budget + Blip after it began to, and at the fifth call if calls are fewer than that. In
// between, each call waits for the whole budget: at the defaults, 5 calls at 1 and at 10 calls/s, and 250 at 1,000. A
// store that stalls for less than Budget + Blip stays up, and the failure mode answers the calls that were late and no
// others. If this process had no processor for a fifth of the budget or longer, the failure may be its own, and Blip is
// five times as long. The first run of a store that has come back needs no Blip: it begins with the answer to the
// probe. The zero run has not begun.
type run struct {
	failures int64
	began    time.Time
	before   int64 // answers of the store before the run
}

// fail adds a failure and reports whether it takes the store down. answers counts all answers of the store. late says
// that this process was late itself.
func (r *run) fail(blip time.Duration, now time.Time, answers int64, late bool) bool {
	if r.began.IsZero() || answers > r.before && now.Sub(r.began) > longestRun {
		*r = run{began: now, before: answers}
	}
	r.failures++
	if late {
		blip *= blipsIfLate
	}
	if r.failures < fewestFailures || now.Sub(r.began) < blip {
		return false
	}
	calls := r.failures + answers - r.before
	return calls == r.failures || calls >= fewestCalls && 2*r.failures >= calls
}

// A Kind is a kind of failure.
type Kind uint8

// The kinds of failure.
const (
	Unknown       Kind = iota // the store failed and may have charged the call
	Unsent                    // the store failed and did not charge the call
	Misconfigured             // the store rejected the call, such as for a wrong password, and did not charge it
	Rejected                  // the store works and rejected only this call: no failure, and no failure mode answers
)

// String returns "unknown", "unsent", "misconfigured" or "rejected".
func (k Kind) String() string {
	return [...]string{Unknown: "unknown", Unsent: "unsent", Misconfigured: "misconfigured", Rejected: "rejected"}[k]
}

// ClassifyBy returns an Options.Classify that asks a store's package about its errors. For Redis:
//
//	Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
//
// An error that is not uncharged is Unknown, also if it is misconfigured: the permission for the second write of a
// script can be missing.
func ClassifyBy(uncharged, misconfigured func(error) bool) func(error) Kind {
	return func(err error) Kind {
		switch {
		case !uncharged(err):
			return Unknown
		case misconfigured(err):
			return Misconfigured
		}
		return Unsent
	}
}
