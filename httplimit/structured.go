package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/http"

	"github.com/dunglas/httpsfv"
)

// partitionBytes of an HMAC are enough to distinguish partitions.
const partitionBytes = 16

func writeDraft11(h http.Header, quotas []quota, hmacKey []byte, v verdict) {
	latest := wholeSeconds(v.retryAfter)
	state := make(httpsfv.List, len(quotas))
	policy := make(httpsfv.List, len(quotas))
	for i, q := range quotas {
		t := wholeSeconds(q.effective)
		if !v.allowed {
			t = min(t, latest)
		}
		s, p := httpsfv.NewItem(q.name), httpsfv.NewItem(q.name)
		s.Params.Add("r", q.remaining)
		p.Params.Add("q", q.units)
		if q.inFlight {
			p.Params.Add("qu", "concurrent-requests")
		} else {
			s.Params.Add("t", t)
			p.Params.Add("w", wholeSeconds(q.window))
		}
		if len(hmacKey) > 0 {
			pk := partition(hmacKey, q.key)
			s.Params.Add("pk", pk)
			p.Params.Add("pk", pk)
		}
		state[i], policy[i] = s, p
	}
	if !v.allowed {
		h.Del("RateLimit") // an outer middleware's times may be beyond our Retry-After
		h.Del("RateLimit-Policy")
	}
	addStructured(h, "RateLimit-Policy", policy)
	addStructured(h, "RateLimit", state)
}

// partition returns a digest that hides the subject's key.
func partition(hmacKey []byte, key string) []byte {
	mac := hmac.New(sha256.New, hmacKey)
	mac.Write([]byte("pk:" + key)) // apart from sash.Secret under the same HMAC key
	return mac.Sum(nil)[:partitionBytes]
}

func writeDraft07(h http.Header, quotas []quota, q quota, reset int64) {
	d := httpsfv.NewDictionary()
	d.Add("limit", httpsfv.NewItem(q.units))
	d.Add("remaining", httpsfv.NewItem(q.remaining))
	d.Add("reset", httpsfv.NewItem(reset))
	h.Del("RateLimit")
	addStructured(h, "RateLimit", d)
	writeNamelessPolicies(h, quotas)
}

// writeNamelessPolicies writes RateLimit-Policy as in drafts 06 and 07: units and window, for those limits
// that have a window.
func writeNamelessPolicies(h http.Header, quotas []quota) {
	var policies httpsfv.List
	for _, q := range quotas {
		if q.inFlight {
			continue
		}
		item := httpsfv.NewItem(q.units)
		item.Params.Add("w", wholeSeconds(q.window))
		policies = append(policies, item)
	}
	h.Del("RateLimit-Policy")
	if len(policies) > 0 {
		addStructured(h, "RateLimit-Policy", policies)
	}
}

// addStructured adds a field. Names are printable and numbers below 10^15, so that it always marshals.
func addStructured(h http.Header, name string, v httpsfv.StructuredFieldValue) {
	if s, err := httpsfv.Marshal(v); err == nil {
		h.Add(name, s)
	}
}
