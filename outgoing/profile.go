package outgoing

import (
	"time"

	"example.com/sash"
)

// A Profile says how an API describes its quotas and refusals. It is data: an API that is not listed is
// described by a Profile of yours. The zero Profile reads what most APIs send: the RateLimit fields of all
// drafts, and the usual X-RateLimit ones.
type Profile struct {
	// Name is the API, for people.
	Name string
	// Quotas are the field names by which the API describes each quota. The RateLimit and
	// RateLimit-Policy fields are read beside them. Nil means the usual names.
	Quotas []QuotaFields
	// AlsoRefused are status codes beside 429 that mean a refusal when the answer has a Retry-After, says
	// that nothing is left, or has one of the Signs.
	AlsoRefused []int
	// Signs tell what a refusal is about. When one has a Path, up to 64 KiB of the bodies of refusals are
	// read before the answer is returned, whose body is whole all the same.
	Signs []Sign
	// CoolDown is how long to stay away after a refusal, or an answer with nothing left, that does not say:
	// the first time, because it grows while refusals repeat. Zero is a second.
	CoolDown time.Duration
	// Resets is the stretch of the calendar, in Zone, with which a quota that is used up begins anew: the
	// end of the cool-down when the answer does not say. Zero is an hour from the refusal.
	Resets sash.Period
	// Zone is where the calendar is. Nil is UTC.
	Zone *time.Location
}

// QuotaFields are the names of the fields that describe one quota. Empty names are not read, and neither are
// values of more than 16 KiB.
type QuotaFields struct {
	// Unit is what is counted. Empty is "requests".
	Unit string
	// Limit, Remaining and Used are fields with a number.
	Limit, Remaining, Used string
	// UsedOfLimit is a field such as "39/40".
	UsedOfLimit string
	// Percent is a field with JSON in which the members that Percentages names, at any depth, are
	// percentages used, of which the greatest counts.
	Percent     string
	Percentages []string
	// Regain is a member of the same JSON, of which the greatest counts: the time until more is available,
	// in units of RegainIn.
	Regain   string
	RegainIn time.Duration
	// Reset is a field with the time of the reset, in the form that ResetForm says.
	Reset     string
	ResetForm ResetForm
}

// A ResetForm says how a reset is written.
type ResetForm uint8

// Forms of a reset. In all of them numbers may have a fraction.
const (
	// ResetAny tells the forms apart: above 10^12 Unix milliseconds, above 10^9 Unix seconds, else
	// seconds from now; ISO 8601, HTTP dates and Go durations by their syntax.
	ResetAny ResetForm = iota
	// ResetSeconds is seconds from now, however many.
	ResetSeconds
	// ResetUnix is seconds since 1970.
	ResetUnix
	// ResetUnixMilli is milliseconds since 1970.
	ResetUnixMilli
)

const (
	unitRequests   = "requests"
	unitConcurrent = "concurrent-requests"
	unitPercent    = "percent"
)

var usual = []QuotaFields{
	{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
	{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Used: "X-RateLimit-Used", Reset: "X-RateLimit-Reset"},
	{Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Reset: "X-Rate-Limit-Reset"},
}

func (p *Profile) quotas() []QuotaFields {
	if p.Quotas == nil {
		return usual
	}
	return p.Quotas
}

func (p *Profile) coolDown() time.Duration {
	if p.CoolDown <= 0 {
		return time.Second
	}
	return p.CoolDown
}
