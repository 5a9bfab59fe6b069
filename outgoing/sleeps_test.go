package outgoing_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/outgoing"
)

// Some retrying clients sleep for as long as a server says, and ignore their context meanwhile. No Retry-After
// makes this transport sleep longer than MaxRetryAfter, or overflow into no sleep.
func TestNoRetryAfterIsSleptForWithoutBound(t *testing.T) {
	for _, after := range []string{
		"61", "86400", "31536000", "9223372036", "9223372037", "18446744073709551616", "99999999999999999999999999",
		"61.5", "Fri, 31 Dec 2100 23:59:59 GMT",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{refuse: 1 << 30, status: http.StatusServiceUnavailable, after: after}
			start := time.Now()
			status, err := get(t.Context(), retrying(t, f, outgoing.Wait, outgoing.Retries{Most: 5}))
			if err != nil || status != http.StatusServiceUnavailable || len(f.bodies) != 1 || time.Since(start) != 0 {
				t.Errorf("Retry-After %q: %d, %v after %v and %d attempts", after, status, err, time.Since(start), len(f.bodies))
			}
		})
	}
}

// With a malformed, negative or past Retry-After the delay is random and bounded.
func TestOddRetryAftersAreNotTrusted(t *testing.T) {
	for _, after := range []string{"-1", "-9223372036854775808", "NaN", "Inf", "1e9", "0x10", "soon", "Mon, 01 Jan 1990 00:00:00 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{refuse: 1, status: http.StatusServiceUnavailable, after: after}
			start := time.Now()
			status, err := get(t.Context(), retrying(t, f, outgoing.Wait, outgoing.Retries{Most: 5}))
			if took := time.Since(start); err != nil || status != http.StatusOK || took > 2*time.Second {
				t.Errorf("Retry-After %q: %d, %v after %v", after, status, err, took)
			}
		})
	}
}

// A sleep ends with the request's context, its cause is returned, and nothing more is sent.
func TestASleepForRetryAfterIsCancelled(t *testing.T) {
	stopped := errors.New("the job was stopped")
	for _, after := range []string{"30", "Sat, 01 Jan 2000 00:00:30 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{refuse: 1 << 30, status: http.StatusTooManyRequests, after: after}
			rt := retrying(t, f, outgoing.Wait, outgoing.Retries{Most: 5})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Second, func() { cancel(stopped) })
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err = rt.RoundTrip(req) //nolint:bodyclose // there is no answer
			if !errors.Is(err, stopped) || time.Since(start) != 10*time.Second || len(f.bodies) != 1 {
				t.Errorf("Retry-After %q: %v after %v and %d attempts", after, err, time.Since(start), len(f.bodies))
			}
		})
	}
}
