package outgoing_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// slidingAPI limits like Sash, and describes it in the fields of draft 11: t is the time to the next release, or
// the time that the units left last at the limit's rate, when that is longer.
func slidingAPI(t *testing.T, limiter *sash.Limiter, refused *int) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		res, err := limiter.Allow(req.Context(), "client")
		if err != nil {
			t.Error(err)
		}
		l := res.Limits()[0]
		whole := func(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
		seconds := max(whole(l.ReleaseAfter), whole(l.Limit.Window*time.Duration(l.Remaining)/time.Duration(l.Limit.Units)))
		w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"a";q=%d;w=%d`, l.Limit.Units, whole(l.Limit.Window)))
		w.Header().Set("RateLimit", fmt.Sprintf(`"a";r=%d;t=%d`, l.Remaining, seconds))
		if !res.Allowed {
			*refused++
			w.Header().Set("Retry-After", strconv.FormatInt(whole(res.RetryAfter), 10))
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
}

func TestAnAPIThatSlidesNeverRefusesTwice(t *testing.T) {
	for name, configured := range map[string]int64{"as configured": 60, "configured too high": 600} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := newLimiter(t, newStore(), nil, sash.PerMinute(60))
				if _, err := limiter.AllowN(t.Context(), "client", 30); err != nil { // another client
					t.Fatal(err)
				}
				refused := 0
				rt := newTransport(t, newStore(), slidingAPI(t, limiter, &refused), outgoing.Options{}, sash.PerMinute(configured))
				start := time.Now()
				for range 300 {
					if _, err := get(t.Context(), rt); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(start); refused > 1 || took > 7*time.Minute {
					t.Errorf("300 calls took %v and were refused %d times", took, refused)
				}
			})
		})
	}
}
