package outgoing

import (
	"net/http"
	"strings"
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

// vendors returns the profiles of known APIs. The zero Profile reads the fields of some of them too; these add
// what a response alone does not say.
func vendors() []Profile {
	return []Profile{
		{
			Name:        "github",
			AlsoRefused: []int{http.StatusForbidden},
			// A secondary limit comes without Retry-After at times, and with most of the primary quota left.
			Signs:    []Sign{{Path: "message", Has: []string{"secondary rate limit", "rate limit exceeded", "abuse detection"}}},
			CoolDown: time.Minute, // as its documentation asks
		},
		{
			Name: "discord",
			// Reset-After needs no clock; X-RateLimit-Reset says the same as Unix seconds.
			Quotas: []QuotaFields{{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset-After"}},
			Signs: []Sign{
				{Field: "X-RateLimit-Global", Has: []string{"true"}, Means: Everywhere},
				{Field: "X-RateLimit-Scope", Has: []string{"global"}, Means: Everywhere},
				{Path: "global", Has: []string{"true"}, Means: Everywhere},
			},
		},
		{
			Name:   "shopify",
			Quotas: []QuotaFields{{UsedOfLimit: "X-Shopify-Shop-Api-Call-Limit"}},
		},
		{
			Name: "openai",
			Quotas: []QuotaFields{
				{Limit: "X-RateLimit-Limit-Requests", Remaining: "X-RateLimit-Remaining-Requests", Reset: "X-RateLimit-Reset-Requests"},
				{Unit: "tokens", Limit: "X-RateLimit-Limit-Tokens", Remaining: "X-RateLimit-Remaining-Tokens", Reset: "X-RateLimit-Reset-Tokens"},
			},
			Signs: []Sign{{Path: "error.code", Has: []string{"insufficient_quota"}, Means: UsedUp}}, // the credit is used up
		},
		{
			Name: "anthropic",
			Quotas: []QuotaFields{
				anthropic("requests"), anthropic("tokens"), anthropic("input-tokens"), anthropic("output-tokens"),
			},
		},
		{
			Name:        "meta",
			Quotas:      []QuotaFields{}, // its percentages are not read
			AlsoRefused: []int{http.StatusBadRequest, http.StatusForbidden},
			Signs: []Sign{{Path: "error.code", Has: []string{
				"4", "17", "32", "613", // calls of the application, the user, the page, and a custom limit
				"80000", "80001", "80002", "80003", "80004", "80005", "80006", "80008", "80009", "80014", // business use cases
			}}},
			CoolDown: time.Minute, // its limits are of a sliding hour, so a little comes back soon
		},
		{
			Name:        "youtube",
			Quotas:      []QuotaFields{}, // it sends no fields before it refuses
			AlsoRefused: []int{http.StatusForbidden},
			Signs: []Sign{
				{Path: "error.errors.reason", Has: []string{"quotaExceeded", "dailyLimitExceeded"}, Means: UsedUp},
				// The buckets of searches and uploads say rateLimitExceeded for a day, too.
				{Path: "error.message", Has: []string{"per day", "daily limit"}, Means: UsedUp},
				{Path: "error.details.metadata.quota_unit", Has: []string{"1/d/{project}"}, Means: UsedUp},
				{Path: "error.errors.reason", Has: []string{"rateLimitExceeded", "userRateLimitExceeded"}, Means: TooFast},
			},
			CoolDown: time.Minute, // beside those of a day its quotas are of a minute
			Resets:   sash.CalendarDay,
			Zone:     pacific(),
		},
	}
}

// pacific is the time zone of YouTube's days. Without a time zone database it has no summer time, when days begin
// an hour late.
func pacific() *time.Location {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		return time.FixedZone("PST", -8*60*60)
	}
	return zone
}

func anthropic(unit string) QuotaFields {
	prefix := "Anthropic-RateLimit-" + unit
	return QuotaFields{Unit: unit, Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Reset: prefix + "-Reset"}
}

// Vendor returns the profile of a known API: anthropic, discord, github, meta, openai, shopify or youtube. The case of
// the name does not matter. It returns false for others: write a profile, or use the zero one, which reads what most send,
// such as Atlassian, Hugging Face and Reddit.
func Vendor(name string) (Profile, bool) {
	for _, p := range vendors() {
		if p.Name == strings.ToLower(name) {
			return p, true
		}
	}
	return Profile{}, false
}
