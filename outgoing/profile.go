package outgoing

import (
	"time"

	"example.com/sash"
)

// A Profile says how an API describes its quotas and refusals. It is data: write one for an API that [Vendor]
// does not list. The zero Profile reads the fields of most APIs: RateLimit of all drafts, and the usual
// X-RateLimit.
type Profile struct {
	// Name is the name of the API, for display.
	Name string
	// Quotas are the fields that describe each quota. RateLimit and RateLimit-Policy are read beside them.
	// Nil means the usual names.
	Quotas []QuotaFields
	// AlsoRefused are status codes beside 429 that mean a refusal when the response has a Retry-After, says
	// that nothing is left, or has one of the Signs.
	AlsoRefused []int
	// Signs distinguish refusals. When one has a Path, up to 64 KiB of the body of a refusal are read before
	// the response is returned; its body is complete all the same.
	Signs []Sign
	// CoolDown is the cool-down after a refusal, or a response with nothing left, that gives no time. It
	// grows while refusals repeat. Zero is a second.
	CoolDown time.Duration
	// Resets is the calendar period, in Zone, at whose end a used-up quota is reset: the end of the
	// cool-down when the response gives no time. Zero is an hour from the refusal.
	Resets sash.Period
	// Zone is the time zone of Resets. Nil is UTC.
	Zone *time.Location
}

// QuotaFields are the names of the fields that describe one quota. Empty names are not read, and neither are
// values of more than 16 KiB.
type QuotaFields struct {
	// Unit is what the quota counts. Empty is "requests".
	Unit string
	// Limit and Remaining are fields with a number.
	Limit, Remaining string
	// UsedOfLimit is a field such as "39/40".
	UsedOfLimit string
	// Reset is a field with the time of the reset. A number above 10^12 is Unix milliseconds, above 10^9 Unix seconds, and
	// else seconds from now, with a fraction or without; ISO 8601, HTTP dates and Go durations are known by their syntax.
	Reset string
}

const (
	unitRequests   = "requests"
	unitConcurrent = "concurrent-requests"
)

var usual = []QuotaFields{
	{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
	{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"},
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
