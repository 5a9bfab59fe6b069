// Package demo shows what a sliding window changes, with the same limiter code that serves requests.
// On the embedded store the demonstrations run in virtual time, so they end at once and always have the same outcome.
//
// # The boundary
//
// 50 units in 10 s. A burst of 50 comes one second before a boundary of the fixed window and another 50
// one second after it. Sliding buckets have a resolution of 100 ms.
//
// # The workload
//
// Ten one-minute windows. A client under 60 calls a minute (fixed windows) is compared
// with the same client under 300 calls per 300 s (a sliding window), which is the same rate. At second
// 150 it wants 150 calls at once, and after those 150 more, one every two seconds.
//
// Assumptions beyond the limits themselves:
//
//   - Times are seconds since the start of the first window.
//   - A refused client knows when to retry (RetryAfter) and retries exactly then, with all calls that are
//     left. Each call is separate, so each refused call counts as one refusal.
//   - Fetching runs at 30 calls a second: 5 s for 150 calls. The first phase ends when the
//     last fetch does.
//   - Under the sliding window the second phase starts when the first one ends. Under fixed windows it
//     starts at 270, the instant at which the worked example that this reproduces starts it. Nothing
//     in the limits holds it until then: starting at once, at 241, it would end at 541.
//   - A call of the second phase takes its whole two seconds, so 150 calls end 300 s after they start.
package demo

import "time"

// A clock is virtual time. It stands still until it is set.
type clock struct{ now time.Time }

// epoch is where virtual time starts. Windows of a minute, and of ten seconds, begin there.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// set moves the clock to a number of seconds after the epoch.
func (c *clock) set(seconds float64) {
	c.now = epoch.Add(time.Duration(seconds * float64(time.Second)).Round(time.Microsecond))
}

func (c *clock) read() time.Time { return c.now }
