package outgoing_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// A token that is revoked is dropped at once, by all processes of a store, and tried again ever more seldom.
func TestARevokedCredentialIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(3)
		api := newTokenAPI(1000, time.Minute, all...)
		store, pool := newStore(), newPool(t, apiTest, all...)
		opts := outgoing.Options{Base: handled(api.ServeHTTP), Spread: -1}
		one := pooled(t, store, pool, opts, sash.PerMinute(1000))
		other := pooled(t, store, pool, opts, sash.PerMinute(1000))
		for range 30 {
			ok(t, one)
			ok(t, other)
		}
		api.revoke(all[1], true)
		for range 300 { // every caller gets an answer
			ok(t, one)
			ok(t, other)
		}
		if n := api.denied[all[1]]; n != 1 {
			t.Errorf("the revoked token was sent %d times, want once", n)
		}
		time.Sleep(90 * time.Second) // it is tried again, and dropped for about two minutes
		for range 10 {
			ok(t, one)
			time.Sleep(10 * time.Second)
		}
		if n := api.denied[all[1]]; n != 2 {
			t.Errorf("the revoked token was sent %d times, want twice", n)
		}
		api.revoke(all[1], false)
		served := api.of[all[1]].served
		for range 10 {
			time.Sleep(30 * time.Second)
			ok(t, one)
		}
		if api.of[all[1]].served == served {
			t.Error("the token is valid again, and was not used within five minutes")
		}
	})
}

// When all are out the error says until when, at once also where requests wait.
func TestAPoolWithoutACredentialSaysUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(2)
		api := newTokenAPI(10, time.Minute, all...)
		rt := pooled(t, newStore(), newPool(t, apiTest, all...), outgoing.Options{Base: handled(api.ServeHTTP)}, sash.PerMinute(10))
		api.revoke(all[0], true)
		api.revoke(all[1], true)
		if status, err := get(t.Context(), rt); err != nil || status != http.StatusUnauthorized {
			t.Errorf("the API's last answer is the caller's: %d, %v", status, err)
		}
		began := time.Now()
		_, err := get(t.Context(), rt)
		var out *outgoing.CoolDownError
		if !errors.As(err, &out) || !errors.Is(err, outgoing.ErrCredentials) || !errors.Is(err, sash.ErrLimited) || time.Since(began) != 0 {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if out.Key != "github" || out.RetryAfter <= 50*time.Second || out.RetryAfter > time.Minute || !strings.Contains(err.Error(), "with 401 or 403 (2)") {
			t.Errorf("%+v: %v", out, err)
		}
		if n := api.denied[all[0]] + api.denied[all[1]]; n != 2 {
			t.Errorf("%d requests were sent", n)
		}
		api.revoke(all[0], false)
		time.Sleep(out.RetryAfter)
		ok(t, rt)
	})
}

// A 403 for a page that nobody may see drops no credential. One that another credential does not get drops it.
func TestAForbiddenPageDropsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(3)
		api := newTokenAPI(1000, time.Minute, all...)
		var forbidden func(token string) bool
		tried := 0
		api.answer = func(w http.ResponseWriter, _ *http.Request, token string) bool {
			if !forbidden(token) {
				return false
			}
			tried++
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		rt := pooled(t, newStore(), newPool(t, apiTest, all...), outgoing.Options{Base: handled(api.ServeHTTP)}, sash.PerMinute(1000))
		forbidden = func(string) bool { return true }
		for range 20 {
			if status, err := get(t.Context(), rt); err != nil || status != http.StatusForbidden {
				t.Fatalf("%d, %v", status, err)
			}
		}
		if tried != 40 {
			t.Errorf("20 requests were tried %d times, want twice each", tried)
		}
		tried = 0
		forbidden = func(token string) bool { return token == all[2] }
		for range 60 {
			ok(t, rt)
		}
		if a, b := api.of[all[0]].served, api.of[all[1]].served; tried != 1 || a < 25 || b < 25 {
			t.Errorf("the suspended token was tried %d times; the others served %d and %d", tried, a, b)
		}
	})
}

// Requests that wait for a credential which the API refuses meanwhile get another one that has room, also when that one
// comes back much later.
func TestARequestDoesNotWaitForARefusedCredential(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
		synctest.Test(t, func(t *testing.T) {
			all := tokens(2)
			var mu sync.Mutex
			served, refused := 0, 0
			start := time.Now()
			api := func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasSuffix(r.Header.Get("Authorization"), all[0]) && time.Since(start) > time.Second {
					refused++
					w.Header().Set("Retry-After", "3000")
					w.WriteHeader(status)
					return
				}
				served++
			}
			opts := outgoing.Options{Base: handled(api), Spread: -1, MaxWait: time.Minute}
			rt := pooled(t, newStore(), newPool(t, apiTest, all...), opts, sash.Every(3, 10*time.Second))
			var group sync.WaitGroup
			for range 12 {
				group.Go(func() { sent(t, rt) })
				time.Sleep(time.Millisecond)
			}
			group.Wait()
			if refused != 1 || served < 11 {
				t.Errorf("%d: %d requests were served and %d refused, want 11 or 12, and 1", status, served, refused)
			}
		})
	}
}

// A body that can be sent again is, and one that cannot is not.
func TestABodyIsSentAgainWithAnotherCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(2)
		api := newTokenAPI(1000, time.Minute, all[0])
		var bodies []string
		api.answer = func(_ http.ResponseWriter, r *http.Request, _ string) bool {
			var b bytes.Buffer
			_, _ = b.ReadFrom(r.Body)
			bodies = append(bodies, b.String())
			return false
		}
		store, pool := newStore(), newPool(t, apiTest, all...)
		rt := pooled(t, store, pool, outgoing.Options{Base: handled(api.ServeHTTP)}, sash.PerMinute(1000))
		for range 10 {
			if status, err := send(t.Context(), rt, http.MethodPost, strings.NewReader("a page")); err != nil || status != http.StatusOK {
				t.Fatalf("%d, %v", status, err)
			}
		}
		if len(bodies) != 10 || strings.Join(bodies, "") != strings.Repeat("a page", 10) || api.denied[all[1]] != 1 {
			t.Errorf("%d were denied, and these arrived: %q", api.denied[all[1]], bodies)
		}
		time.Sleep(time.Hour)
		denied := 0
		for range 10 {
			status := must(send(t.Context(), rt, http.MethodPost, streamed{strings.NewReader("a stream")}))(t)
			if status == http.StatusUnauthorized {
				denied++
			}
		}
		if denied != 1 || api.denied[all[1]] != 2 {
			t.Errorf("%d of 10 streams got the 401, and the token was sent %d times in all", denied, api.denied[all[1]])
		}
	})
}

// streamed is a body that cannot be sent again.
type streamed struct{ *strings.Reader }

func (streamed) Seek(int64, int) (int64, error) { return 0, errors.New("a stream") }
