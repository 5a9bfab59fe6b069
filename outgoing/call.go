package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"example.com/sash"
)

// A Route returns the call that a request is charged as. The transport calls it once per request; it must not change the request.
// It returns [ErrExempt] for a request that is not limited, such as one for an access token. Any other error fails the request.
type Route func(*http.Request) (Call, error)

// ErrExempt is the error of a Route for a request that it does not limit. The transport sends the request at once.
var ErrExempt = errors.New("outgoing: the request is exempt")

// Everything routes all requests to one bucket, at a cost of one unit each. For an invalid key, such as an
// empty one, it returns nil, and New then returns an error.
func Everything(key string) Route {
	if checkKey(key) != nil {
		return nil
	}
	return func(*http.Request) (Call, error) { return Call{Key: key}, nil }
}

// A Call describes what one request is charged to.
type Call struct {
	// Key names the bucket by what the API counts by: a credential, or a credential and a route. Build it with [sash.Key], and from a
	// token with [sash.Secret]. A blank key is [sash.ErrInvalidKey], and so is a key with an empty part for a missing token.
	Key string
	// Account groups several buckets, such as those of one credential if the API counts by route. It is not
	// charged. When a [Sign] says that a refusal is for the whole API, all buckets of the account cool down;
	// without an Account, only the Key does. To look for this cool-down, each call makes one more round trip.
	Account string
	// Cost is the units of the request. Zero is 1.
	Cost int64
	// Unit is what the bucket counts, as in RateLimit fields: "requests" when empty, or "tokens",
	// "content-bytes". Only quotas of this unit change the bucket's limits.
	Unit string
	// Limits are the bucket's limits. Empty means the limits of the transport.
	Limits []sash.Limit
	// Share is the percentage of the limits, 1 to 100, that calls of this class may fill: with 95, cron jobs stop when all
	// classes together have used 95 %, which leaves the rest to interactive calls. Zero is 100. Units are rounded down.
	Share int
	// Also lists further buckets, charged in the same decision, all or nothing: the limiter of an expensive operation, or a quota
	// that several credentials share. Responses change only the Key's bucket. Levels that calls with such a bucket as their Key
	// have learnt apply here too, and looking for its cool-down costs a round trip. Cost and Limits default as above.
	Also []sash.Subject
	// Pool has credentials, one of which the request uses. The bucket of each is the Key and the credential's name, with its own
	// Limits and Share. A Call with a Pool has no Account and no Also. Looking for cool-downs costs two round trips.
	Pool *Pool
	// Profile says how the API describes its quotas. Nil means the profile of the transport.
	Profile *Profile
	// Settle returns the units that a response used: Usage.Total, or less if the API does not count all tokens. The
	// Cost is then an estimate, such as that of [EstimateRequest]. When the response's body ends or is closed, one
	// round trip corrects the charge to the Key, but not those of Also. If the request fails or has no final usage,
	// the estimate stays. A status of 400 or above gives the charge back, except a proxy's 408, 499, 504 and 524,
	// which mean that it stopped waiting. If Settle is nil or the store cannot settle, the Cost stays.
	Settle func(Usage) int64

	credential *credential // of the Pool, when one is chosen
	tries      *tries      // of a call with a Pool
	holder     *holder     // of the attempt's slot
	before     int64       // what this process had charged to the bucket before the decision
}

// checkKey returns an error for a key that names no bucket, usually because of an unset variable.
func checkKey(key string) error {
	switch {
	case strings.TrimSpace(key) == "":
		return fmt.Errorf("%w: the bucket's key is blank; a route returns ErrExempt for a request that is not limited", sash.ErrInvalidKey)
	case slices.Contains(strings.Split(key, ":"), ""):
		return fmt.Errorf("%w: the bucket's key %q has an empty part; is a token or an ID missing?", sash.ErrInvalidKey, key)
	case len(key) > sash.MaxKeyLength:
		return fmt.Errorf("%w: the bucket's key has %d bytes, more than %d; build it with sash.Key", sash.ErrInvalidKey, len(key), sash.MaxKeyLength)
	}
	return nil
}

func (c Call) complete(t *Transport) (Call, error) {
	for _, key := range c.cooling() {
		if err := checkKey(key); err != nil {
			return c, err
		}
	}
	if c.Pool != nil {
		if c.Account != "" || len(c.Also) > 0 {
			return c, errors.New("outgoing: the route returned a Call with a Pool and an Account or Also: each credential is its own account")
		}
		c.tries = new(tries)
	}
	c.Cost = cmp.Or(c.Cost, 1)
	c.Unit = cmp.Or(c.Unit, unitRequests)
	if len(c.Limits) == 0 {
		c.Limits = t.limits
	}
	c.Share = cmp.Or(c.Share, 100)
	if c.Share < 1 || c.Share > 100 {
		return c, fmt.Errorf("outgoing: the route returned a Share of %d; it is a percentage, 1 to 100", c.Share)
	}
	c.Profile = cmp.Or(c.Profile, &t.opts.Profile)
	c.Also = slices.Clone(c.Also)
	for i := range c.Also {
		c.Also[i].Cost = cmp.Or(c.Also[i].Cost, 1)
		if len(c.Also[i].Limits) == 0 {
			c.Also[i].Limits = t.limits
		}
	}
	return c, nil
}

// settle settles a call's estimate when the body of its response has been read.
func (c *Call) settle(ctx context.Context, res *http.Response, place *sash.Reservation) {
	switch {
	case c.Settle == nil || place == nil || slices.Contains([]int{http.StatusRequestTimeout, 499, http.StatusGatewayTimeout, 524}, res.StatusCode):
	case res.StatusCode >= http.StatusBadRequest:
		_ = place.Parts[0].Cancel(ctx)
	case res.StatusCode >= http.StatusOK:
		res.Body = MeterBody(res.Body, func(u Usage) {
			if u.Final {
				_ = place.Parts[0].Settle(ctx, min(max(c.Settle(u), 0), sash.MaxUnits)) // if the store fails, the estimate stays
			}
		})
	}
}

// percent returns the share of a subject's limits that the call may fill. The Share of a call applies to its
// own bucket, the first subject.
func (c *Call) percent(subject int) int {
	if subject == 0 {
		return c.Share
	}
	return 100
}

// subjects returns the subjects of a complete call, its own bucket first.
func (c *Call) subjects() []sash.Subject {
	own := sash.Subject{Key: c.Key, Cost: c.Cost, Limits: c.Limits}
	return append([]sash.Subject{own}, c.Also...)
}

func (c *Call) cooling() []string {
	keys := []string{c.Key}
	if c.Account != "" && c.Account != c.Key {
		keys = append(keys, c.Account)
	}
	for _, s := range c.Also {
		keys = append(keys, s.Key)
	}
	return keys
}

// share returns the percentage of units, without overflow: units are below 2^40.
func share(units int64, percent int) int64 { return units * int64(percent) / 100 }
