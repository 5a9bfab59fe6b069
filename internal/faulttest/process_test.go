package faulttest

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
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
		server := redistest.Start(t)
		l := limiter(t, a.open(t, to(server.Addr(), hurried)), limits...)
		load := startOn(t, l, hurried)
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
		before.keepsTo(t, 1, limits...)
		after.keepsTo(t, 1, limits...)
		all.keepsTo(t, 2, limits...)
		extra, lost := all.admitted().units()-long.Units, before.admitted().units()
		// What failed may be charged too, in either life of the server, and the last unit may be free.
		if unknown := all.failed().units() + 1; extra > lost || extra < lost-unknown {
			t.Errorf("%d units more than the limit, but %d were lost (and up to %d unknown)", extra, lost, unknown)
		}
		all.log(t, "%d units were lost and %d admitted beyond %d", lost, extra, long.Units)
	})
}

// A server hangs, with calls under way, and goes on, or holds back its clients for longer than they wait, as an administrator
// does for a failover. It then runs what it was sent, for callers who have left.
func TestPausedServer(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		l := limiter(t, a.open(t, to(server.Addr(), hurried)), limits...)
		load := startOn(t, l, hurried)
		for _, pause := range []string{"process", "ALL", "process", "WRITE"} {
			more(t, "admissions before the fault", &load.admitted, 100)
			if pause == "process" {
				server.Pause()
			} else {
				server.Must(t, "CLIENT", "PAUSE", strconv.FormatInt((4*hurried).Milliseconds(), 10), pause)
			}
			more(t, "calls that give up", &load.failed, callers)
			if pause == "process" {
				server.Resume()
			}
		}
		more(t, "admissions after the fault", &load.admitted, 100)
		all := load.stop()

		all.keepsTo(t, 1, limits...)
		charges := used(t, l, subject)
		all.charged(t, charges)
		all.log(t, "%d units are charged", charges)
	})
}

// More calls at once than a server that is well gets at once are decided one after the other, however long a busy machine
// takes for them.
func TestManyCallsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		const calls = 2000
		l := limiter(t, openWith(t, a.open(t, to(redistest.Start(t).Addr(), 5*time.Minute)), 5*time.Minute), sash.Every(100_000, time.Hour))
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for range calls {
			callers.Go(func() {
				if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != sash.FromStore {
					t.Errorf("decided by the %v, %v, because of %v", res.Source, err, res.Cause)
				}
			})
		}
		callers.Wait()
		if n := used(t, l, "k"); n != 1+calls {
			t.Errorf("%d units are charged for %d calls", n, 1+calls)
		}
	})
}
