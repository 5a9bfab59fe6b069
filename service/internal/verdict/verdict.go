// Package verdict is the JSON form of a decision: the one that the service and the command line give.
package verdict

import (
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/degrade"
)

// A Verdict is a decision. Durations are seconds as decimals, exact to the microsecond.
type Verdict struct {
	// Allowed says whether the call may go ahead.
	Allowed bool `json:"allowed"`
	// Remaining is the units left, the fewest over all limits; null when nothing limits the call.
	Remaining *int64 `json:"remaining"`
	// RetryAfter is 0, or for a refusal the time after which the same call is admitted.
	RetryAfter Seconds `json:"retry_after"`
	// ResetAfter is the time until every unit of every limit is free.
	ResetAfter Seconds `json:"reset_after"`
	// RefusedBy is the name of the limit that refused, or Ban, or null.
	RefusedBy *string `json:"refused_by"`
	// Shadow is there, and true, when the limits do not bind: Allowed is true whatever they say, and
	// RefusedBy and RetryAfter are what a refusal would have said.
	Shadow bool `json:"shadow,omitempty"`
	// Limits has one element a limit, and is empty when nothing limits the call.
	Limits []Limit `json:"limits"`
	// At is the store's clock when it decided; null when the store was not asked.
	At *Instant `json:"at"`
	// Source says who decided: store; cache, for what the store had said before and still holds; and while the
	// store is unavailable local, for this process over its share, or policy, where nothing was counted. Null
	// when nothing limits the call.
	Source *string `json:"source"`
	// Cause is there when the source is local or policy, and says why the store did not decide: see
	// degrade.Cause.
	Cause string `json:"cause,omitempty"`
}

// A Limit is one limit's part of a verdict.
type Limit struct {
	// Name is the limit's name, which is its text, such as "10/1m", unless it was given another.
	Name string `json:"name"`
	// Units is the most that the window may hold.
	Units int64 `json:"units"`
	// Window is the length of a sliding window; 0 for a calendar limit, whose Period says which.
	Window Seconds `json:"window"`
	// Period is such as "day@Europe/Paris", and absent for a sliding window.
	Period string `json:"period,omitempty"`
	// Remaining is the units of this limit that are left.
	Remaining int64 `json:"remaining"`
}

// Of returns the verdict of a result.
func Of(res sash.Result) Verdict {
	at := Instant(res.At)
	v := Verdict{
		Allowed:    res.Allowed,
		Remaining:  &res.Remaining,
		RetryAfter: Seconds(res.RetryAfter),
		ResetAfter: Seconds(res.ResetAfter),
		Limits:     []Limit{},
		At:         &at,
	}
	v.source(res.Source, res.Cause)
	if by, refused := res.RefusedBy(); refused {
		v.RefusedBy = &by.Limit.Name
	}
	for _, l := range res.Limits() {
		limit := Limit{Name: l.Limit.Name, Units: l.Limit.Units, Window: Seconds(l.Limit.Window), Remaining: l.Remaining}
		if l.Limit.Period != 0 {
			_, limit.Period, _ = strings.Cut(l.Limit.String(), "/")
		}
		v.Limits = append(v.Limits, limit)
	}
	return v
}

// Foresee returns the verdict that a call of cost units would get, as far as a result that charged nothing can
// tell: RetryAfter is when the next units are released, which is exact for a cost of 1, and a larger one may
// have to wait longer.
func Foresee(res sash.Result, cost int64) Verdict {
	v := Of(res)
	v.Allowed, v.RefusedBy, v.RetryAfter = true, nil, 0
	for _, l := range res.Limits() {
		if l.Remaining >= cost {
			continue
		}
		v.Allowed = false
		if wait := Seconds(max(l.ReleaseAfter, l.RetryAfter)); v.RefusedBy == nil || wait > v.RetryAfter {
			v.RefusedBy, v.RetryAfter = &l.Limit.Name, wait
		}
	}
	return v
}

// Unlimited is the verdict on a call that nothing limits.
func Unlimited() Verdict { return Verdict{Allowed: true, Limits: []Limit{}} }

// Undecided is the verdict on a call that is let through although the store is unavailable.
func Undecided(cause error) Verdict {
	v := Unlimited()
	v.source(sash.FromPolicy, cause)
	return v
}

func (v *Verdict) source(source sash.Source, cause error) {
	name := source.String()
	v.Source = &name
	if cause != nil {
		v.Cause = degrade.Cause(cause)
	}
}

// Seconds is a duration that JSON has in seconds, to the microsecond: 90 for a minute and a half,
// 0.000001 for a microsecond.
type Seconds time.Duration

// MarshalJSON writes a decimal, with no more digits than it needs.
func (s Seconds) MarshalJSON() ([]byte, error) {
	micros := time.Duration(s).Microseconds()
	b := strconv.AppendInt(nil, micros/1e6, 10)
	if rest := micros % 1e6; rest != 0 {
		digits := strconv.FormatInt(1e6+rest, 10)[1:]
		b = append(b, '.')
		b = append(b, strings.TrimRight(digits, "0")...)
	}
	return b, nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	d, err := time.ParseDuration(string(b) + "s")
	*s = Seconds(d)
	return err
}

// RoundUp returns whole seconds, never fewer than the duration: for the Retry-After field of HTTP.
func (s Seconds) RoundUp() int64 {
	return int64((time.Duration(s) + time.Second - 1) / time.Second)
}

// Instant is a time that JSON has as RFC 3339 in UTC with six decimals.
type Instant time.Time

const instantLayout = "2006-01-02T15:04:05.000000Z07:00"

// MarshalJSON writes the instant.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(i).UTC().Format(`"` + instantLayout + `"`)), nil
}

// UnmarshalJSON reads an RFC 3339 time.
func (i *Instant) UnmarshalJSON(b []byte) error {
	return (*time.Time)(i).UnmarshalJSON(b)
}
