package faulttest

import (
	"testing"

	"example.com/sash/internal/redistest"
)

// The link to the replica is slow, the primary is killed, and the replica takes over without the charges
// that were still on their way. Exactly those are admitted again.
func TestFailoverLosesWhatWasNotReplicated(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		primary := redistest.Start(t)
		link := through(t, primary.Addr())
		replica := redistest.StartReplica(t, link.Listen)
		l := limiter(t, a.open(t, to(primary.Addr(), patient)), limits...)
		load := startOn(t, l, patient)
		more(t, "admissions that are replicated", &load.admitted, 300)
		link.add(t, spoil{"latency", false, map[string]int{"latency": 3_600_000}}, 1)
		await(t, "the limit is reached", func() bool { return used(t, l, subject) == long.Units })
		more(t, "refusals after that", &load.refused, 100)
		primary.Stop() // what is under way now is refused: nothing is charged that was not admitted
		more(t, "failures while there is no primary", &load.failed, 10)
		before := load.stop()

		link.Stop()
		replica.Promote(t)
		heir := limiter(t, a.open(t, to(replica.Addr(), patient)), limits...)
		arrived := used(t, heir, subject)
		load = startOn(t, heir, patient)
		await(t, "the limit is reached again", func() bool { return used(t, heir, subject) == long.Units })
		more(t, "refusals after that", &load.refused, 100)
		after := load.stop()

		all := append(append(history(nil), before...), after...)
		lost, extra := long.Units-arrived, all.admitted().units()-long.Units
		if before.admitted().units() != long.Units {
			t.Errorf("the primary admitted %d units, want %d", before.admitted().units(), long.Units)
		}
		if extra != lost || extra > long.Units || lost == 0 {
			t.Errorf("%d charges were lost, and %d units admitted again", lost, extra)
		}
		before.keepsTo(t, 1, limits...)
		after.keepsTo(t, 1, limits...)
		all.keepsTo(t, 2, limits...)
		all.log(t, "%d of %d charges arrived, %d were lost, %d were admitted beyond the limit", arrived, long.Units, lost, extra)
	})
}
