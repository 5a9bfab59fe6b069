package httplimit

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// The fields that are written into a buffer are those that a library of RFC 9651 makes of the same values.
func TestFieldsAreThoseOfTheLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "burst", "100/1h", `quo"te\`, "täglich", "tab\tnew\nline", " ", "\x7f~}", `"`, `\\""`, "a:b, c;d=e"}
	number := func() int64 { return rng.Int64N(1 << rng.IntN(50)) }
	for range 3000 {
		quotas := make([]quota, 1+rng.IntN(4))
		for i := range quotas {
			quotas[i] = quota{
				layer: fieldName(texts[rng.IntN(len(texts))]), name: fieldName(texts[rng.IntN(len(texts))]), key: texts[rng.IntN(3)],
				units: number(), remaining: number(), window: time.Duration(number()), effective: time.Duration(number() - 1000),
				inFlight: rng.IntN(4) == 0, refused: rng.IntN(2) == 0, retry: time.Duration(number()),
			}
		}
		hmacKey := []byte(texts[rng.IntN(2)])
		compareWithLibrary(t, quotas, hmacKey, verdict{allowed: rng.IntN(2) == 0, retryAfter: time.Duration(number())})
	}
}

func FuzzFieldsAreThoseOfTheLibrary(f *testing.F) {
	f.Add("", "100/1h", int64(100), int64(99), int64(time.Hour), int64(time.Minute), false, true, []byte(nil))
	f.Add("customer", `quo"te\`, int64(1), int64(0), int64(1), int64(0), true, false, []byte("key"))
	f.Add("täglich", "\x00\x7f", int64(0), int64(-1), int64(-1), int64(1)<<62, false, false, []byte{0})
	f.Fuzz(func(t *testing.T, layer, name string, units, remaining, window, effective int64, inFlight, allowed bool, hmacKey []byte) {
		const most = 1e15 // numbers of RFC 9651 are below it, and so are units and seconds
		q := quota{
			layer: fieldName(layer), name: fieldName(name), key: layer,
			units: units % most, remaining: remaining % most, window: time.Duration(window), effective: time.Duration(effective),
			inFlight: inFlight, refused: !allowed,
		}
		compareWithLibrary(t, []quota{q, {name: "other", units: 1, window: time.Second}, q}, hmacKey, verdict{allowed: allowed, retryAfter: time.Duration(window)})
	})
}

// compareWithLibrary compares the fields of the dialects that have structured ones, with fields of an outer middleware.
func compareWithLibrary(t *testing.T, quotas []quota, hmacKey []byte, v verdict) {
	t.Helper()
	for _, d := range []Dialect{Draft11, Draft07, Draft06} {
		got, want := http.Header{}, http.Header{}
		for _, h := range []http.Header{got, want} {
			h.Set("RateLimit", "outer")
			h.Set("RateLimit-Policy", "outer")
		}
		d.write(got, quotas, hmacKey, v)
		q := tightest(quotas)
		switch {
		case d == Draft11:
			libraryDraft11(want, quotas, hmacKey, v)
		case q == nil || !v.allowed && !q.refused: // nothing can be expressed
		default:
			reset := q.effective
			if !v.allowed {
				reset = v.retryAfter
			}
			libraryOlder(want, quotas, q, wholeSeconds(reset), d)
		}
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			if !slices.Equal(got.Values(name), want.Values(name)) {
				t.Fatalf("%v of %+v: %s is\n%q, the library's\n%q", d, quotas, name, got.Values(name), want.Values(name))
			}
		}
	}
}

func libraryDraft11(h http.Header, quotas []quota, hmacKey []byte, v verdict) {
	var state, policy httpsfv.List
	for _, q := range quotas {
		name := q.name
		if q.layer != "" {
			name = q.layer + ":" + name
		}
		t := wholeSeconds(q.effective)
		if !v.allowed {
			t = min(t, wholeSeconds(v.retryAfter))
		}
		s, p := httpsfv.NewItem(name), httpsfv.NewItem(name)
		s.Params.Add("r", q.remaining)
		p.Params.Add("q", q.units)
		if q.inFlight {
			p.Params.Add("qu", "concurrent-requests")
		} else {
			s.Params.Add("t", t)
			p.Params.Add("w", wholeSeconds(q.window))
		}
		if len(hmacKey) > 0 {
			s.Params.Add("pk", partition(hmacKey, q.key))
			p.Params.Add("pk", partition(hmacKey, q.key))
		}
		state, policy = append(state, s), append(policy, p)
	}
	if !v.allowed {
		h.Del("RateLimit")
		h.Del("RateLimit-Policy")
	}
	h.Add("RateLimit-Policy", marshal(policy))
	h.Add("RateLimit", marshal(state))
}

func libraryOlder(h http.Header, quotas []quota, q *quota, reset int64, d Dialect) {
	if d == Draft07 {
		fields := httpsfv.NewDictionary()
		fields.Add("limit", httpsfv.NewItem(q.units))
		fields.Add("remaining", httpsfv.NewItem(q.remaining))
		fields.Add("reset", httpsfv.NewItem(reset))
		h.Set("RateLimit", marshal(fields))
	}
	var policies httpsfv.List
	for _, q := range quotas {
		if !q.inFlight {
			item := httpsfv.NewItem(q.units)
			item.Params.Add("w", wholeSeconds(q.window))
			policies = append(policies, item)
		}
	}
	h.Set("RateLimit-Policy", marshal(policies))
}

func marshal(v httpsfv.StructuredFieldValue) string {
	s, err := httpsfv.Marshal(v)
	if err != nil {
		panic(err)
	}
	return s
}
