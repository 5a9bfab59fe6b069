package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash/lease"
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

// own compares the own share of this region with what regions have agreed on at the home.
func (v *visit) own(ctx context.Context, own *lease.Own) {
	if own == nil {
		return
	}
	regions, err := own.Registered(ctx, v.store())
	names := strings.Join(regions, ", ")
	switch {
	case err != nil:
		v.note("own", Warn, "this region would have no own share: "+err.Error(), "give every region the same --regions and --own-share, and a --region of its own")
	case !slices.Contains(regions, own.Region):
		v.note("own", Unchecked, fmt.Sprintf("%q has no own share yet; registered are: %s", own.Region, cmp.Or(names, "none")), "start sash serve in this region while the home answers")
	default:
		v.note("own", OK, fmt.Sprintf("%q has an own share; registered are: %s", own.Region, names), "")
	}
}
