package config

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
	"example.com/sash/failover"
)

// A Place is where the charges of a rule are kept, and whether units are leased. The zero Place is the store of the region.
type Place struct {
	// Global says that a home keeps the charges, for all regions: scope: global.
	Global bool
	// Lease is the longest lease: whole microseconds. Zero is none, and the store decides each call.
	Lease time.Duration
	// Own is the own share of each region: on_unavailable: local with scope: global. The zero OwnShare is none.
	Own OwnShare
}

// An OwnShare is the part of each limit, in percent, that each region counts for itself.
type OwnShare struct{ Regions, Percent int }

// Bounds of the default lease of a rule with scope: global.
const (
	leasesInWindow = 20          // in the shortest window: leases cost a twentieth of the units
	usualWay       = time.Second // a lease is longer than a few trips to a home far away,
	shareOfWindow  = 4           // unless that is more than this part of the window
	leastLeases    = 2           // in the shortest window, for a lease in the configuration
)

// Bounds of a lease: those of package lease.
const (
	minLease = time.Millisecond
	maxLease = time.Minute

	leastShared = int64(64) // a region leases units only of limits with so many,
	leastAlone  = int64(16) // and an instance by itself of limits with so many
)

const notLeased = "algorithm sliding-log, sorted-set-log or sliding-buckets, no day or month of the calendar, no count_refused and no block"

// place reads scope and lease of a rule whose other keys were read.
//
//	scope: global    # the home keeps the charges, for all regions
//	lease: 2s        # units are charged up to 2 s in advance
func (b *ruleBody) place(rule *Rule) {
	if b.Scope != nil {
		text := b.Text("scope", b.Scope)
		if text != "global" && text != "region" {
			b.Fail(b.Scope, "scope %q must be global, for one limit over all regions, or region, for one in each", Clip(text))
		}
		rule.Place.Global = text == "global"
	}
	own := b.wantsOwnShare(rule)
	b.readPlace(rule)
	if own {
		b.ownShare(rule)
	} else if stray := cmp.Or(b.Regions, b.OwnShare); stray != nil {
		b.Fail(stray, "regions and own_share are for the own share of each region: give scope: global and on_unavailable: local too")
	}
}

func (b *ruleBody) readPlace(rule *Rule) {
	fits := leasable(rule.Limits, rule.Options) && (rule.Candidate == nil || leasable(rule.Candidate.Limits, rule.Candidate.Options))
	switch {
	case b.Lease != nil && !fits:
		b.Fail(b.Lease, "units of this rule cannot be leased: a lease needs %s; remove lease, and every call is decided by the store", notLeased)
		return
	case b.Lease != nil:
		b.readLease(rule)
		return
	case !rule.Place.Global:
		return
	case fits:
		rule.Place.Lease = defaultLease(rule.Limits)
	}
	if rule.Place.Lease > 0 && longer(rule) == nil {
		return
	}
	rule.Place.Lease = 0
	b.Warn(b.Scope, "scope: global, and units of this rule cannot be leased: every call takes a trip to the home; a lease needs %s", notLeased)
}

// defaultOwnShare is the part of each limit, in percent, that a region has for itself.
const defaultOwnShare = 10

// wantsOwnShare reports whether on_unavailable asks for an own share of a limit over all regions.
func (b *ruleBody) wantsOwnShare(rule *Rule) bool {
	modes := rule.OnUnavailable.Rules
	if !rule.Place.Global || !slices.ContainsFunc(modes, func(m failover.Rule) bool { return m.Mode == failover.Local }) {
		return false
	}
	if len(modes) > 1 || modes[0].MaxCost > 0 {
		b.Fail(b.OnUnavailable, "on_unavailable is local for some costs beside scope: global, and the own share of a region is for every cost: "+
			"use local alone, or open and closed")
	}
	return true
}

// ownShare gives each region an own share of a rule's limits.
//
//	on_unavailable: local
//	regions: 3        # how many share the home, the same in all of them
//	own_share: 10%    # of each limit, for each of them
func (b *ruleBody) ownShare(rule *Rule) {
	regions := Resolve(cmp.Or(b.Regions, &yaml.Node{}))
	n, whole := Integer(regions)
	switch {
	case rule.Place.Lease == 0:
		b.Fail(b.OnUnavailable, "on_unavailable is local beside scope: global, and a region has no own share of limits that cannot be leased: use open or closed")
	case b.Regions == nil:
		b.Fail(b.OnUnavailable, "on_unavailable is local beside scope: global, an own share of each region: give their number, such as regions: 3")
	case !whole || n < 1 || n > 99:
		b.Fail(b.Regions, "regions %q must be how many regions share the home, such as 3", Clip(regions.Value))
	}
	if b.Err != nil {
		return
	}
	own := OwnShare{Regions: int(n), Percent: defaultOwnShare}
	if b.OwnShare != nil {
		text := b.Text("own_share", b.OwnShare)
		number, isPercent := strings.CutSuffix(text, "%")
		percent, err := strconv.Atoi(number)
		if err != nil || !isPercent || percent < 1 || percent > 99 {
			b.Fail(b.OwnShare, "own_share %q must be whole percent of each limit, for each region, such as 10%%", Clip(text))
		}
		own.Percent = percent
	}
	at := cmp.Or(b.OwnShare, b.Regions)
	if own.Regions*own.Percent >= 100 {
		b.Fail(at, "%d regions with %d %% of each limit each leave the home nothing: give a smaller own_share", own.Regions, own.Percent)
	}
	for _, l := range rule.Limits {
		if l.Units*int64(own.Percent) < 100 {
			b.Fail(at, "%d %% of %s is no unit: give a larger own_share, or on_unavailable: closed", own.Percent, l)
		}
	}
	rule.Place.Own = own
}

func (b *ruleBody) readLease(rule *Rule) {
	d := &rule.Place.Lease
	b.lasting("lease", maxLease, "at least 1ms, such as 2s", d)(b.Lease)
	if *d < minLease {
		b.Fail(b.Lease, "lease %q must be at least %v", *d, minLease)
	}
	if most := shortest(rule.Limits) / leastLeases; *d > most {
		b.Fail(b.Lease, "a lease of %s is longer than half of the window of %s: callers would get much less than the limit; give %s at most",
			short(*d), shortest(rule.Limits), short(most))
	}
	if err := longer(rule); err != nil {
		b.Fail(b.Lease, "windows are longer by the lease of %s: %s", short(*d), plain(err))
	}
	least, decides := leastAlone, "Redis"
	if rule.Place.Global {
		least, decides = leastShared, "the home"
	}
	if i := slices.IndexFunc(rule.Limits, func(l sash.Limit) bool { return l.Units < least }); i >= 0 {
		b.Warn(b.Lease, "a limit of %d units is too small for leases, which need %d: %s decides each call, and lease only makes the window longer",
			rule.Limits[i].Units, least, decides)
	}
}

// longer returns what is wrong with the limits of a rule under the longer windows that its lease needs.
func longer(rule *Rule) error {
	err := longerBy(rule.Place.Lease, rule.Options, rule.Limits)
	if err == nil && rule.Candidate != nil {
		err = longerBy(rule.Place.Lease, rule.Candidate.Options, rule.Candidate.Limits)
	}
	return err
}

func longerBy(lease time.Duration, opts sash.Options, limits []sash.Limit) error {
	limits = slices.Clone(limits)
	for i := range limits {
		limits[i].Window += lease
	}
	_, err := sash.NewPolicy(&opts, limits...)
	return err
}

// leasable reports whether units of limits can be spent later than they are charged: see package lease.
func leasable(limits []sash.Limit, opts sash.Options) bool {
	return slides(limits, opts) && opts.Block == (sash.Block{})
}

func slides(limits []sash.Limit, opts sash.Options) bool {
	return opts.Algorithm.Exact() && !opts.CountRefused && !slices.ContainsFunc(limits, func(l sash.Limit) bool { return l.Period != 0 })
}

// Refundable reports whether a refund that comes within a time frees only its own charge: all charges count in the longest of the limits.
func Refundable(limits []sash.Limit, opts sash.Options, within time.Duration) bool {
	return within > 0 && slides(limits, opts) && slices.ContainsFunc(limits, func(l sash.Limit) bool { return l.Window > within })
}

// shortest returns the shortest window of limits; periods of the calendar count as their longest.
func shortest(limits []sash.Limit) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, l := range limits {
		switch l.Period {
		case sash.CalendarHour:
			l.Window = time.Hour
		case sash.CalendarDay:
			l.Window = 26 * time.Hour
		case sash.CalendarMonth:
			l.Window = 33 * 24 * time.Hour
		}
		least = min(least, l.Window)
	}
	return least
}

// defaultLease returns a twentieth of the shortest window, but at least a second and at most a minute. For a window
// below four seconds, it returns a quarter of the window. Zero means that the window is too short for a lease.
func defaultLease(limits []sash.Limit) time.Duration {
	window := shortest(limits)
	d := max(window/leasesInWindow, min(usualWay, window/shareOfWindow))
	d = min(d, maxLease).Truncate(time.Microsecond)
	if d < minLease {
		return 0
	}
	return d
}

// For returns the place of limits that replace a rule's, such as a request limit. If a lease does not fit them, the place has none.
func (p Place) For(limits []sash.Limit, opts sash.Options) Place {
	if !leasable(limits, opts) || shortest(limits) < leastLeases*p.Lease || longerBy(p.Lease, opts, limits) != nil {
		p.Lease = 0
	}
	return p
}

// ErrNoHome means that a rule has scope: global and there is no home.
var ErrNoHome = errors.New("scope: global needs the home, the Redis that all regions share: give --home, and --redis with the one of this region")
