package outgoing

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// vendors are the APIs whose fields are known. The usual profile reads some of them too; these say what
// cannot be told from an answer alone.
var vendors = []Profile{
	{
		Name: "github",
		Quotas: []QuotaFields{{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Used: "X-RateLimit-Used",
			Reset: "X-RateLimit-Reset", ResetForm: ResetUnix}},
		AlsoRefused: []int{http.StatusForbidden},
		CoolDown:    time.Minute, // what its documentation asks for after a secondary limit without Retry-After
	},
	{
		Name: "discord",
		// Reset-After needs no clock; X-RateLimit-Reset says the same as Unix seconds.
		Quotas: []QuotaFields{{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining",
			Reset: "X-RateLimit-Reset-After", ResetForm: ResetSeconds}},
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
	},
	{
		Name: "anthropic",
		Quotas: []QuotaFields{
			anthropic("requests"), anthropic("tokens"), anthropic("input-tokens"), anthropic("output-tokens"),
		},
	},
	{
		Name: "meta",
		Quotas: []QuotaFields{
			{Unit: unitPercent, Percent: "X-App-Usage"},
			{Unit: unitPercent, Percent: "X-Ad-Account-Usage"},
		},
	},
	{
		Name: "reddit",
		Quotas: []QuotaFields{{Remaining: "X-RateLimit-Remaining", Used: "X-RateLimit-Used",
			Reset: "X-RateLimit-Reset", ResetForm: ResetSeconds}},
	},
	{
		Name: "atlassian",
		Quotas: []QuotaFields{{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining",
			Reset: "X-RateLimit-Reset"}},
	},
	{
		Name:   "huggingface",
		Quotas: []QuotaFields{}, // RateLimit is well formed; its RateLimit-Policy is not, and is ignored
	},
}

func anthropic(unit string) QuotaFields {
	prefix := "Anthropic-RateLimit-" + unit
	return QuotaFields{Unit: unit, Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Reset: prefix + "-Reset"}
}

// Vendor returns the profile of a known API: anthropic, atlassian, discord, github, huggingface, meta,
// openai, reddit or shopify. The case of the name does not matter. It returns false for others, whose
// profile is the zero one or one of your own.
func Vendor(name string) (Profile, bool) {
	for _, p := range vendors {
		if p.Name == strings.ToLower(name) {
			p.Quotas = slices.Clone(p.Quotas)
			p.AlsoRefused = slices.Clone(p.AlsoRefused)
			return p, true
		}
	}
	return Profile{}, false
}
