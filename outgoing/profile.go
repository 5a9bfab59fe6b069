package outgoing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/sash"
)

// A Profile says how an API describes its quotas and refusals. It is plain data: write one for an API that [Vendor]
// does not list. The zero Profile reads the fields of most APIs: RateLimit of all drafts, and the usual X-RateLimit.
type Profile struct {
	// Name is the name of the API, for display.
	Name string
	// Quotas are the fields that describe each quota, in addition to RateLimit and RateLimit-Policy. Nil means the usual names.
	Quotas []QuotaFields
	// AlsoRefused are more status codes that refuse, if the response has a Retry-After, says that nothing is left, or has a Sign.
	AlsoRefused []int
	// Signs distinguish refusals. For a Path, up to 64 KiB of a refusal's body are read before the caller gets it, still complete.
	Signs []Sign
	// CoolDown is the cool-down after a response that refuses, or has nothing left, and gives no time. It grows
	// while refusals repeat. Zero is a second.
	CoolDown time.Duration
	// Resets is the calendar period, in Zone, at whose end a used-up quota is reset. The cool-down lasts until
	// then if the response gives no time. Zero is an hour from the refusal.
	Resets sash.Period
	// Zone is the time zone of Resets. Nil is UTC.
	Zone *time.Location
}

// QuotaFields are the names of the fields that describe one quota. Empty names and values longer than 16 KiB are ignored.
type QuotaFields struct {
	// Unit is what the quota counts. Empty is "requests".
	Unit string
	// Limit and Remaining are fields with a number.
	Limit, Remaining string
	// UsedOfLimit is a field such as "39/40".
	UsedOfLimit string
	// Reset is a field with the time of the reset. A number above 10^12 is Unix milliseconds, above 10^9 Unix seconds, and
	// otherwise seconds from now, perhaps with a fraction. ISO 8601, HTTP dates and Go durations are recognized too.
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

func (p *Profile) coolDown() time.Duration { return cmp.Or(max(p.CoolDown, 0), time.Second) }

// vendors returns the profiles of known APIs. They add what responses do not say, even where the zero Profile reads the fields.
func vendors() []Profile {
	return []Profile{
		{
			Name:        "github",
			AlsoRefused: []int{http.StatusForbidden},
			// Refusals by a secondary limit sometimes have no Retry-After, and most of the primary quota left.
			Signs:    []Sign{{Path: "message", Has: []string{"secondary rate limit", "rate limit exceeded", "abuse detection"}}},
			CoolDown: time.Minute, // as its documentation asks
		},
		{
			Name: "discord",
			// Reset-After needs no clock. X-RateLimit-Reset gives the same time in Unix seconds.
			Quotas: []QuotaFields{{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset-After"}},
			Signs: []Sign{
				{Field: "X-RateLimit-Global", Has: []string{"true"}, Means: Everywhere},
				{Field: "X-RateLimit-Scope", Has: []string{"global"}, Means: Everywhere},
				{Path: "global", Has: []string{"true"}, Means: Everywhere},
			},
		},
		{Name: "shopify", Quotas: []QuotaFields{{UsedOfLimit: "X-Shopify-Shop-Api-Call-Limit"}}},
		{Name: "openai", Quotas: openai(), Signs: []Sign{{Path: "error.code", Has: []string{"insufficient_quota"}, Means: UsedUp}}},
		{Name: "azure-openai", Quotas: openai()}, // sometimes without Limit and Reset, or with -1 for unknown
		{
			Name:     "gemini",
			Quotas:   []QuotaFields{}, // it sends no fields
			Signs:    []Sign{{Path: "error.details.violations.quotaId", Has: []string{"PerDay"}, Means: UsedUp}},
			CoolDown: time.Minute, // it has quotas of a minute as well as of a day
			Resets:   sash.CalendarDay,
			Zone:     pacific(),
		},
		{
			Name:   "bedrock",
			Quotas: []QuotaFields{},                                                           // it sends no fields
			Signs:  []Sign{{Path: "message", Has: []string{"tokens per day"}, Means: UsedUp}}, // the end of its day is not documented
		},
		{Name: "anthropic", Quotas: []QuotaFields{
			anthropic("requests"), anthropic("tokens"), anthropic("input-tokens"), anthropic("output-tokens"),
		}},
		{
			Name:        "meta",
			Quotas:      []QuotaFields{}, // its percentages are not read
			AlsoRefused: []int{http.StatusBadRequest, http.StatusForbidden},
			Signs: []Sign{{Path: "error.code", Has: []string{
				"4", "17", "32", "613", // calls of the application, the user, the page, and a custom limit
				"80000", "80001", "80002", "80003", "80004", "80005", "80006", "80008", "80009", "80014", // business use cases
			}}},
			CoolDown: time.Minute, // its limits are over a sliding hour, so a little comes back soon
		},
		{
			Name:        "youtube",
			Quotas:      []QuotaFields{}, // it sends no fields before it refuses
			AlsoRefused: []int{http.StatusForbidden},
			Signs: []Sign{
				{Path: "error.errors.reason", Has: []string{"quotaExceeded", "dailyLimitExceeded"}, Means: UsedUp},
				// For searches and uploads, the quota of a day also says rateLimitExceeded.
				{Path: "error.message", Has: []string{"per day", "daily limit"}, Means: UsedUp},
				{Path: "error.details.metadata.quota_unit", Has: []string{"1/d/{project}"}, Means: UsedUp},
				{Path: "error.errors.reason", Has: []string{"rateLimitExceeded", "userRateLimitExceeded"}, Means: TooFast},
			},
			CoolDown: time.Minute, // it has quotas of a minute as well as of a day
			Resets:   sash.CalendarDay,
			Zone:     pacific(),
		},
	}
}

func openai() []QuotaFields {
	return []QuotaFields{
		{Limit: "X-RateLimit-Limit-Requests", Remaining: "X-RateLimit-Remaining-Requests", Reset: "X-RateLimit-Reset-Requests"},
		{Unit: "tokens", Limit: "X-RateLimit-Limit-Tokens", Remaining: "X-RateLimit-Remaining-Tokens", Reset: "X-RateLimit-Reset-Tokens"},
	}
}

// pacific is the time zone of Google's days. Without a time zone database it has no daylight saving time: days then begin an hour late.
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

// Vendor returns the profile of a known API, in upper or lower case: anthropic, azure-openai, bedrock, discord, gemini, github,
// meta, openai, shopify or youtube. It returns false for others: write a profile, or use the zero one, which suits most APIs.
func Vendor(name string) (Profile, bool) {
	for _, p := range vendors() {
		if p.Name == strings.ToLower(name) {
			return p, true
		}
	}
	return Profile{}, false
}

// A Sign is a header field, or a value in a JSON body, that says how a request was refused. The transport looks for signs
// in responses with status 429 or one of [Profile].AlsoRefused. It uses the first sign of the profile that it finds.
type Sign struct {
	// Field is the name of a header field. Empty means to look at Path.
	Field string
	// Path is the path of a value in the body: names with dots between them, such as "error.errors.reason". It
	// descends into each element of an array.
	Path string
	// Has lists phrases. A text must contain one of them, in upper or lower case. A number or a boolean must equal one in its JSON form.
	Has []string
	// Means is the meaning of the refusal.
	Means Meaning
}

// A Meaning is the scope and duration of a refusal.
type Meaning uint8

// The meanings.
const (
	// TooFast refuses for the moment. The cool-down is that of the response, or [Profile].CoolDown.
	TooFast Meaning = iota
	// UsedUp means that the quota is used up until its reset. The cool-down ends as the response says, or at the profile's next reset.
	UsedUp
	// Everywhere is TooFast for all buckets of the [Call].Account.
	Everywhere
)

func (p *Profile) signOf(res *http.Response) (means Meaning, found bool) {
	body := sync.OnceValue(func() any { return peek(res) }) // only if it is needed, because reading may take time
	for _, s := range p.Signs {
		if s.Field != "" && s.in(get(res.Header, s.Field)) || s.Field == "" && s.under(body(), strings.Split(s.Path, ".")) {
			return s.Means, true
		}
	}
	return TooFast, false
}

func (s *Sign) under(value any, path []string) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return s.under(element, path) })
	case map[string]any:
		return len(path) > 0 && s.under(v[path[0]], path[1:])
	}
	text, ok := value.(string)
	return len(path) == 0 && (ok && s.in(text) || !ok && slices.Contains(s.Has, fmt.Sprint(value)))
}

func (s *Sign) in(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(s.Has, func(phrase string) bool { return strings.Contains(text, strings.ToLower(phrase)) })
}

// mostPeeked is the most bytes of a body that are read to find signs.
const mostPeeked = 64 << 10

// peek decodes a JSON body and leaves it complete for the caller, who closes it. It returns nil if the body is
// not JSON or is longer than mostPeeked.
func peek(res *http.Response) any {
	if res.Body == nil || res.Body == http.NoBody {
		return nil
	}
	start, err := io.ReadAll(io.LimitReader(res.Body, mostPeeked+1))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err} // the caller gets the error at the same position
	}
	res.Body = readCloser{io.MultiReader(bytes.NewReader(start), rest), res.Body}
	var value any
	if err != nil || len(start) > mostPeeked || json.Unmarshal(start, &value) != nil {
		return nil
	}
	return value
}

type readCloser struct {
	io.Reader
	io.Closer
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
