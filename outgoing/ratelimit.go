package outgoing

import (
	"net/http"
	"slices"
	"time"

	"github.com/dunglas/httpsfv"

	"example.com/sash"
)

// readRateLimit reads RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers: lists of
// named quotas (drafts 08 to 11), and one nameless quota (draft 07). Their syntax differs.
func readRateLimit(h http.Header) (quotas []quota) {
	list, all := lines(h, "RateLimit"), policies(lines(h, "RateLimit-Policy"))
	for _, item := range items(list) { // "name";r=50;t=30; a branch of the draft calls them a and w
		name, ok := item.Value.(string)
		remaining, found := integer(item.Params, "r", "a")
		if !ok || !found {
			continue
		}
		q := quota{name: name, unit: unitRequests}
		if i := slices.IndexFunc(all, func(p quota) bool { return p.name == name }); i >= 0 {
			q = all[i]
		}
		q.remaining, q.hasRemaining = min(remaining, sash.MaxUnits), true
		if t, ok := integer(item.Params, "t", "w"); ok {
			q.reset, q.hasReset = seconds(float64(t)), true
		}
		quotas = append(quotas, q)
	}
	if dict, err := httpsfv.UnmarshalDictionary(list); err == nil && len(quotas) == 0 {
		return nameless(dict, all)
	}
	return quotas
}

// nameless reads limit=100, remaining=50, reset=30.
func nameless(dict *httpsfv.Dictionary, policies []quota) []quota {
	value := func(name string) (int64, bool) {
		member, _ := dict.Get(name)
		item, _ := member.(httpsfv.Item)
		n, ok := item.Value.(int64)
		return n, ok && n >= 0
	}
	remaining, ok := value("remaining")
	if !ok {
		return nil
	}
	q := quota{unit: unitRequests, remaining: min(remaining, sash.MaxUnits), hasRemaining: true}
	if limit, ok := value("limit"); ok {
		q.limit = min(limit, sash.MaxUnits)
	}
	if reset, ok := value("reset"); ok {
		q.reset, q.hasReset = seconds(float64(reset)), true
	}
	q.window = windowFor(q.limit, policies)
	return []quota{q}
}

// policies reads RateLimit-Policy: "name";q=100;w=60, or without a name 100;w=60, 1000;w=3600.
func policies(lines []string) (all []quota) {
	for _, item := range items(lines) {
		q := quota{unit: unitRequests}
		limit, ok := integer(item.Params, "q")
		switch v := item.Value.(type) {
		case string:
			q.name = v
		case int64:
			limit, ok = v, v >= 0
		}
		if !ok {
			continue
		}
		unit, _ := item.Params.Get("qu")
		if s, ok := unit.(string); ok && s != "" {
			q.unit = s
		}
		window, _ := integer(item.Params, "w")
		q.limit, q.window = min(limit, sash.MaxUnits), seconds(float64(window))
		all = append(all, q)
	}
	return all
}

// windowFor returns the window of the policy without a name that has this limit, or zero.
func windowFor(limit int64, policies []quota) time.Duration {
	for _, p := range policies {
		if p.name == "" && p.limit == limit {
			return p.window
		}
	}
	return 0
}

// items returns the members of a List that are Items; none if it is malformed.
func items(lines []string) (all []httpsfv.Item) {
	list, _ := httpsfv.UnmarshalList(lines)
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			all = append(all, item)
		}
	}
	return all
}

// integer returns the first of the parameters that is a whole number and not negative.
func integer(params *httpsfv.Params, names ...string) (int64, bool) {
	for _, name := range names {
		if v, ok := params.Get(name); ok {
			n, ok := v.(int64)
			return n, ok && n >= 0
		}
	}
	return 0, false
}
