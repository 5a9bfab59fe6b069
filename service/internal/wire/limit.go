package wire

import (
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

// A Limit is one limit, with what is used of it where that is known.
type Limit struct {
	// Name is the limit's name, which is its text, such as "10/1m", unless it was given another.
	Name string `json:"name"`
	// Units is the most that the window may hold.
	Units int64 `json:"units"`
	// Window is the length of a sliding window; 0 for a calendar limit, whose Period says which.
	Window Seconds `json:"window"`
	// Period is such as "day@Europe/Paris", and absent for a sliding window.
	Period string `json:"period,omitempty"`
	// Remaining is the units of this limit that are left; absent where the limit is only named.
	Remaining *int64 `json:"remaining,omitempty"`
}

// A Usage is a limit with what is used of it, of a subject that was looked at. A number that the store did not return
// is null.
type Usage struct {
	Limit
	Remaining *int64 `json:"remaining"`
	// Share is the units that this instance may admit alone while the store does not answer, and Used is of them. Share is
	// absent otherwise. Used is null where it cannot be known: of a share that is not known either, of a blocked subject,
	// and of a rule with own shares of regions.
	Share *int64 `json:"share,omitempty"`
	Used  *int64 `json:"used"`
	// ReleaseAfter is the time until the next unit is free, and ResetAfter until all are.
	ReleaseAfter *Seconds `json:"release_after"`
	ResetAfter   *Seconds `json:"reset_after"`
}

// LimitOf returns a limit by itself.
func LimitOf(l sash.Limit) Limit {
	out := Limit{Name: l.Name, Units: l.Units, Window: Seconds(l.Window)}
	if out.Name == "" {
		out.Name = l.String()
	}
	if l.Period != 0 {
		_, out.Period, _ = strings.Cut(l.String(), "/")
	}
	return out
}

// LimitsOf returns limits by themselves.
func LimitsOf(limits []sash.Limit) []Limit {
	out := make([]Limit, len(limits))
	for i, l := range limits {
		out[i] = LimitOf(l)
	}
	return out
}

// UsageOf returns the limits of an answer with what is used of each. It has none if the store was not asked, or did not
// answer.
func UsageOf(a *decide.Answer) []Usage {
	out := []Usage{}
	if a.Source == sash.FromPolicy {
		return out
	}
	for i := range a.Limits {
		l := &a.Limits[i]
		release, reset := Seconds(l.ReleaseAfter), Seconds(l.ResetAfter)
		u := Usage{Limit: LimitOf(l.Limit), Remaining: &l.Remaining, ReleaseAfter: &release, ResetAfter: &reset}
		// A block leaves no units, whatever is used. Of a rule with own shares the home knows its part of the limit only.
		shared := a.Rule != nil && a.Rule.Place.Own.Regions > 0
		if !shared && a.Source != sash.FromOwn && a.Source != sash.FromLocal && !a.Blocked {
			used := l.Limit.Units - l.Remaining
			u.Used = &used
		}
		out = append(out, u)
	}
	return out
}
