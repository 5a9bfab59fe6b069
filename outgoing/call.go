package outgoing

import (
	"fmt"
	"iter"
	"net/http"
	"slices"

	"example.com/sash"
)

// A Route says what a request is charged to. It is called once a request and must not change it. An error
// fails the request.
type Route func(*http.Request) (Call, error)

// Everything routes all requests to one bucket, at a cost of one unit each.
func Everything(key string) Route {
	return func(*http.Request) (Call, error) { return Call{Key: key}, nil }
}

// A Call is what one request is charged to. The zero Call is not limited.
type Call struct {
	// Key is the bucket: what the API counts, such as a credential, or a credential and a route. Build it
	// with [sash.Key], and from a token with [sash.Secret]. Empty means that the request is not limited.
	Key string
	// Account is what several buckets belong to, such as the credential of an API that counts by route.
	// Nothing is charged to it: a refusal that is for all of the API, as a [Sign] says, is a cool-down of
	// the account, and no process sends to any of its buckets. Looking for that costs one more round
	// trip. When it is empty such a refusal is a cool-down of the Key.
	Account string
	// Cost is the units of the request. Zero is 1.
	Cost int64
	// Unit is what the bucket counts, as in RateLimit fields: "requests" when empty, or "tokens",
	// "content-bytes". Only what the API says about this unit changes the bucket's limits.
	Unit string
	// Limits of the bucket. Empty means those of the transport.
	Limits []sash.Limit
	// Share is the percentage of the limits, 1 to 100, that this class of calls may find used, its own
	// cost included. All classes are charged to the same bucket: with 95, cron jobs stop when 95 % is
	// used by all, and the rest is left to interactive calls. Zero is 100. Parts of a unit are not used.
	Share int
	// Also are further buckets, charged in the same decision, all or nothing: an expensive operation's own
	// limiter, or a quota that several credentials share. An answer cannot say which bucket it is about,
	// so what it teaches is about the Key alone: make the Key what the API describes in its answers. What
	// calls with another Key have learnt holds also for calls that have it here: its cool-down, for one
	// more round trip each, and its lower limits. Empty Limits are those of the transport.
	Also []sash.Subject
	// Profile is how the API describes its quotas. Nil means that of the transport.
	Profile *Profile
}

// complete fills in defaults.
func (c Call) complete(t *Transport) (Call, error) {
	if c.Cost == 0 {
		c.Cost = 1
	}
	if c.Unit == "" {
		c.Unit = unitRequests
	}
	if len(c.Limits) == 0 {
		c.Limits = t.limits
	}
	if c.Share == 0 {
		c.Share = 100
	}
	if c.Share < 1 || c.Share > 100 {
		return c, fmt.Errorf("outgoing: the route gave a Share of %d; it is a percentage, 1 to 100", c.Share)
	}
	if c.Profile == nil {
		c.Profile = &t.opts.Profile
	}
	c.Also = slices.Clone(c.Also)
	for i := range c.Also {
		if len(c.Also[i].Limits) == 0 {
			c.Also[i].Limits = t.limits
		}
	}
	return c, nil
}

// percent returns the part of its limits that the call may find used of a subject: its class is one of its
// own bucket, the first.
func (c *Call) percent(subject int) int {
	if subject == 0 {
		return c.Share
	}
	return 100
}

// subjects are what a complete call is charged to, its own bucket first.
func (c *Call) subjects() []sash.Subject {
	own := sash.Subject{Key: c.Key, Cost: c.Cost, Limits: c.Limits}
	return append([]sash.Subject{own}, c.Also...)
}

// cooling yields what may have a cool-down that holds for the call.
func (c *Call) cooling() iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(c.Key) || c.Account != "" && c.Account != c.Key && !yield(c.Account) {
			return
		}
		for _, s := range c.Also {
			if !yield(s.Key) {
				return
			}
		}
	}
}

// share returns the percentage of units, without overflow: units are below 2^40.
func share(units int64, percent int) int64 { return units * int64(percent) / 100 }
