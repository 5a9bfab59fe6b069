package faulttest

import (
	"testing"
	"time"

	"example.com/sash"
)

// The limits of most tests. The short one paces the callers, so that there are admissions, refusals and
// charges that leave before, in and after a fault; the long one counts everything that was ever charged.
var (
	short  = sash.Every(60, 50*time.Millisecond)
	long   = sash.Every(1500, time.Hour)
	limits = []sash.Limit{short, long}
)

// A primary is killed in the middle of the load and starts again without what it held.
func TestKilledServerThatComesBackEmpty(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server, l, load := loaded(t, a, hurried)
		more(t, "admissions before the fault", &load.admitted, 300)
		server.Stop()
		killed := time.Now()
		more(t, "failures while the server is down", &load.failed, 20)
		server.Restart()
		more(t, "admissions after the fault", &load.admitted, 300)
		await(t, "the long limit is reached again", func() bool { return used(t, l, subject) >= long.Units-1 })
		more(t, "refusals after that", &load.refused, 100)
		all := load.stop()

		before, after := all.before(killed), all.after(killed)
		losesStateOnce(t, before, after, all)
		extra, lost := all.admitted().units()-long.Units, before.admitted().units()
		// What failed may be charged too, in either life of the server, and the last unit may be free.
		if unknown := all.failed().units() + 1; extra > lost || extra < lost-unknown {
			t.Errorf("%d units more than the limit, but %d were lost (and up to %d unknown)", extra, lost, unknown)
		}
		all.log(t, "%d units were lost and %d admitted beyond %d", lost, extra, long.Units)
	})
}
