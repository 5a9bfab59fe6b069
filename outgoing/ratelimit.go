package outgoing

import (
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"

	"example.com/sash"
)

// readRateLimit reads RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers: lists of
// named quotas (drafts 08 to 11), and one nameless quota (draft 07). Their syntax differs.
func readRateLimit(h http.Header) []quota {
	list := lines(h, "RateLimit")
	if len(list) == 0 {
		return nil
	}
	if all, err := httpsfv.UnmarshalList(list); err == nil {
		if quotas := named(all, policiesByName(lines(h, "RateLimit-Policy"))); len(quotas) > 0 {
			return quotas
		}
	}
	dict, err := httpsfv.UnmarshalDictionary(list)
	if err != nil {
		return nil
	}
	return nameless(dict, namelessPolicies(lines(h, "RateLimit-Policy")))
}

// named reads "name";r=50;t=30. A branch of the draft calls them a and w.
func named(list httpsfv.List, policies map[string]quota) []quota {
	var quotas []quota
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		name, ok := item.Value.(string)
		remaining, found := integer(item.Params, "r", "a")
		if !ok || !found {
			continue
		}
		q, known := policies[name]
		if !known {
			q = quota{name: name, unit: unitRequests}
		}
		q.remaining, q.hasRemaining = min(remaining, sash.MaxUnits), true
		if t, ok := integer(item.Params, "t", "w"); ok {
			q.reset, q.hasReset = seconds(float64(t)), true
		}
		quotas = append(quotas, q)
	}
	return quotas
}

func policiesByName(lines []string) map[string]quota {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	policies := make(map[string]quota)
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		name, ok := item.Value.(string)
		limit, found := integer(item.Params, "q")
		if !ok || !found {
			continue
		}
		q := quota{name: name, unit: unitRequests, limit: min(limit, sash.MaxUnits), window: windowOf(item.Params)}
		if unit, ok := item.Params.Get("qu"); ok {
			if s, ok := unit.(string); ok && s != "" {
				q.unit = s
			}
		}
		policies[name] = q
	}
	return policies
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

// windowFor returns the window of the policy that has this limit, or zero.
func windowFor(limit int64, policies []quota) time.Duration {
	for _, p := range policies {
		if p.limit == limit {
			return p.window
		}
	}
	return 0
}

// namelessPolicies reads 100;w=60, 1000;w=3600.
func namelessPolicies(lines []string) []quota {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	var policies []quota
	for _, member := range list {
		item, _ := member.(httpsfv.Item)
		if n, ok := item.Value.(int64); ok && n >= 0 {
			policies = append(policies, quota{limit: min(n, sash.MaxUnits), window: windowOf(item.Params)})
		}
	}
	return policies
}

func windowOf(params *httpsfv.Params) time.Duration {
	w, _ := integer(params, "w")
	return seconds(float64(w))
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
