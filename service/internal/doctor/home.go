package doctor

import (
	"fmt"
	"time"
)

// tripsInLease is how many trips a lease should last: the next one is fetched while it is spent, and both ways vary.
const tripsInLease = 4

// leases compares leases with the way to the home.
func (v *visit) leases(all []Lease) {
	if v.way == 0 {
		v.note("lease", Unchecked, "the way to the home is unknown", "")
		return
	}
	least := (tripsInLease * v.way).Truncate(time.Millisecond) + time.Millisecond
	for _, l := range all {
		switch {
		case l.Longest >= tripsInLease*v.way:
		case l.Longest < 2*v.way:
			v.note("lease", Warn, fmt.Sprintf("%s: a lease of %v is shorter than two trips to the home, of %v: the home decides each call", l.Rule, l.Longest, short(v.way)),
				fmt.Sprintf("give the rule lease: %v or more; if its window is too short for that, scope: global costs a trip a call", least))
		default:
			v.note("lease", Warn, fmt.Sprintf("%s: a lease of %v is shorter than four trips to the home, of %v: callers often wait for the next one", l.Rule, l.Longest, short(v.way)),
				fmt.Sprintf("give the rule lease: %v or more", least))
		}
	}
	v.note("lease", OK, fmt.Sprintf("leases from %v on fit a way of %v", least, short(v.way)), "")
}
