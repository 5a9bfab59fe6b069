package outgoing_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/sash/outgoing"
)

// A dialect writes the state of a quota in a vendor's fields.
type dialect func(h http.Header, limit, left int, window time.Duration, reset time.Time)

// written returns a dialect of fields such as "X-RateLimit-Remaining: {left}".
func written(lines ...string) dialect {
	return func(h http.Header, limit, left int, window time.Duration, reset time.Time) {
		until := time.Until(reset)
		whole := func(n float64) string { return strconv.Itoa(int(math.Ceil(n))) }
		values := strings.NewReplacer(
			"{limit}", strconv.Itoa(limit), "{left}", strconv.Itoa(left), "{used}", strconv.Itoa(limit-left),
			"{w}", whole(window.Seconds()), "{s}", whole(until.Seconds()), "{ms}", fmt.Sprintf("%.3f", until.Seconds()), "{duration}", until.String(),
			"{unix}", strconv.FormatInt(reset.Unix(), 10), "{time}", reset.UTC().Format(time.RFC3339),
			"{minute}", reset.UTC().Format("2006-01-02T15:04Z"),
		)
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Set(name, values.Replace(value))
		}
	}
}

// dialects are those of the vendors that their names begin with, or of no vendor.
var dialects = map[string]dialect{
	"draft 11":  written(`RateLimit-Policy: "default";q={limit};w={w}`, `RateLimit: "default";r={left};t={s}`),
	"draft 07":  written("RateLimit: limit={limit}, remaining={left}, reset={s}", "RateLimit-Policy: {limit};w={w}"),
	"draft 06":  written("RateLimit-Limit: {limit}", "RateLimit-Remaining: {left}", "RateLimit-Reset: {s}"),
	"legacy":    written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset: {unix}"),
	"github":    written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset: {unix}"),
	"discord":   written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset-After: {ms}"),
	"shopify":   written("X-Shopify-Shop-Api-Call-Limit: {used}/{limit}"),
	"reddit":    written("X-RateLimit-Remaining: {left}.0", "X-RateLimit-Reset: {s}"),
	"atlassian": written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset: {minute}"),
	"openai": written("X-RateLimit-Limit-Requests: {limit}", "X-RateLimit-Remaining-Requests: {left}",
		"X-RateLimit-Reset-Requests: {duration}"),
	"anthropic": written("Anthropic-RateLimit-Requests-Limit: {limit}", "Anthropic-RateLimit-Requests-Remaining: {left}",
		"Anthropic-RateLimit-Requests-Reset: {time}"),
	"huggingface": written(`RateLimit: "api";r={left};t={s}`, `RateLimit-Policy: "fixed window";"api";q={limit};w={w}`),
}

// vendorOf returns the profile of the vendor that a name begins with.
func vendorOf(name string) outgoing.Profile {
	name, _, _ = strings.Cut(name, ",")
	p, _ := outgoing.Vendor(name)
	return p
}
