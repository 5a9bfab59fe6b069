package outgoing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/outgoing"
)

var hmacKey = []byte("thirty-two bytes for all of these tests")

// A tokenAPI enforces a limit for each token in any window, exactly, and knows which tokens are valid.
type tokenAPI struct {
	limit  int
	window time.Duration
	answer func(w http.ResponseWriter, r *http.Request, token string) bool // reports whether it has answered

	mu      sync.Mutex
	valid   map[string]bool
	log     map[string][]time.Time // of what was served
	served  map[string]int
	refused map[string]int // with 429
	denied  map[string]int // with 401
}

func newTokenAPI(limit int, window time.Duration, tokens ...string) *tokenAPI {
	a := &tokenAPI{
		limit: limit, window: window, valid: map[string]bool{}, log: map[string][]time.Time{},
		served: map[string]int{}, refused: map[string]int{}, denied: map[string]int{},
	}
	for _, token := range tokens {
		a.valid[token] = true
	}
	return a
}

func (a *tokenAPI) revoke(token string, revoked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.valid[token] = !revoked
}

func (a *tokenAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !a.valid[token] {
		a.denied[token]++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	now := time.Now()
	log := a.log[token]
	for len(log) > 0 && !log[0].After(now.Add(-a.window)) {
		log = log[1:]
	}
	a.log[token] = log
	if len(log) >= a.limit {
		a.refused[token]++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	if a.answer == nil || !a.answer(w, r, token) {
		a.served[token]++
		a.log[token] = append(log, now)
	}
}

func (a *tokenAPI) sum(of map[string]int) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range of {
		n += one
	}
	return n
}

func tokens(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("ghp_S3cr3t-%d-t0ken", i)
	}
	return all
}

func newPool(t *testing.T, origin string, credentials ...string) *outgoing.Pool {
	t.Helper()
	p, err := outgoing.NewPool(origin, hmacKey, credentials, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pooled returns a transport whose requests are all charged to a pool.
func pooled(t *testing.T, store driver.Store, pool *outgoing.Pool, opts outgoing.Options, limits ...sash.Limit) *outgoing.Transport {
	t.Helper()
	route := func(*http.Request) (outgoing.Call, error) { return outgoing.Call{Key: "github", Pool: pool}, nil }
	rt, err := outgoing.New(store, route, &opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

const apiTest = "http://api.test"

// A pool has the limits of all its credentials together, and no credential gets more requests than its own.
func TestAPoolUsesEveryCredentialUpToItsLimit(t *testing.T) {
	for _, mode := range []outgoing.Mode{outgoing.Refuse, outgoing.Wait} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := tokens(5)
				api := newTokenAPI(4, 10*time.Second, all...)
				rt := pooled(t, newStore(), newPool(t, apiTest, all...),
					outgoing.Options{Base: handled(api.ServeHTTP), Mode: mode, Spread: -1}, sash.Every(4, 10*time.Second))
				began := time.Now()
				for range 20 {
					ok(t, rt)
				}
				for _, token := range all {
					if n := api.served[token]; n != 4 {
						t.Errorf("%d requests with one token, want 4", n)
					}
				}
				if mode == outgoing.Refuse {
					_, err := get(t.Context(), rt)
					var limited *sash.LimitedError
					if !errors.As(err, &limited) || limited.Result.RetryAfter != 10*time.Second {
						t.Errorf("all are full: %v", err)
					}
					return
				}
				for range 40 { // each waits for the credential that is free first
					ok(t, rt)
				}
				if took := time.Since(began); took != 20*time.Second || api.sum(api.refused) != 0 {
					t.Errorf("60 requests at 20 in 10 s took %v, and %d were refused", took, api.sum(api.refused))
				}
			})
		})
	}
}

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
		for range 600 { // five hours
			time.Sleep(30 * time.Second)
			ok(t, one)
		}
		if n := api.denied[all[1]]; n < 5 || n > 25 { // of 600: the pauses double up to an hour, and chance decides when it is its turn
			t.Errorf("the revoked token was sent %d times in five hours", n)
		}
		api.revoke(all[1], false)
		served := api.served[all[1]]
		for range 140 {
			time.Sleep(30 * time.Second)
			ok(t, one)
		}
		if api.served[all[1]] == served {
			t.Error("the token is valid again, and was not used within 70 minutes")
		}
	})
}

// When all are out the error says until when, at once also in mode Wait.
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
		var out *outgoing.CredentialsError
		if !errors.As(err, &out) || !errors.Is(err, sash.ErrLimited) || time.Since(began) != 0 {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if out.Credentials != 2 || out.Key != "github" || out.RetryAfter <= 50*time.Second || out.RetryAfter > time.Minute ||
			!out.Until.Equal(began.Add(out.RetryAfter)) || !strings.Contains(err.Error(), out.Until.UTC().Format(time.RFC3339)) {
			t.Errorf("%+v: %v", out, err)
		}
		if n := api.sum(api.denied); n != 2 {
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
		if tried != 1 || api.served[all[0]] < 25 || api.served[all[1]] < 25 {
			t.Errorf("the suspended token was tried %d times; served: %v", tried, api.served)
		}
	})
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
			status, err := send(t.Context(), rt, http.MethodPost, streamed{strings.NewReader("a stream")})
			if err != nil {
				t.Fatal(err)
			}
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

// What a response says of a quota lowers the limit of its own credential, and a 429 is a cool-down of that one.
func TestAQuotaIsThatOfItsCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(2)
		api := newTokenAPI(1000, time.Hour, all...)
		api.answer = func(w http.ResponseWriter, _ *http.Request, token string) bool {
			left := "900"
			if token == all[0] {
				left = "3"
			}
			w.Header().Set("X-RateLimit-Limit", "1000")
			w.Header().Set("X-RateLimit-Remaining", left)
			return false
		}
		rt := pooled(t, newStore(), newPool(t, apiTest, all...), outgoing.Options{Base: handled(api.ServeHTTP), Mode: outgoing.Refuse, Spread: -1}, sash.PerHour(1000))
		for range 100 {
			ok(t, rt)
		}
		if a, b := api.served[all[0]], api.served[all[1]]; a > 8 || b < 92 {
			t.Errorf("%d requests with the token that has 3 left, and %d with the other", a, b)
		}
		api.answer = func(w http.ResponseWriter, _ *http.Request, token string) bool {
			if token == all[1] {
				answer(http.StatusTooManyRequests, "Retry-After: 60")(w, nil)
			}
			return token == all[1]
		}
		time.Sleep(2 * time.Hour) // both are free
		statuses := map[int]int{}
		for range 20 {
			status, err := get(t.Context(), rt)
			if err != nil {
				t.Fatal(err)
			}
			statuses[status]++
		}
		if statuses[http.StatusTooManyRequests] != 1 || statuses[http.StatusOK] != 19 {
			t.Errorf("one token cools down, and the other serves: %v", statuses)
		}
	})
}

// No credential is sent to another host, scheme or port: neither by a redirect nor directly.
func TestACredentialIsSentToItsOriginAlone(t *testing.T) {
	var mu sync.Mutex
	var leaked []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		leaked = append(leaked, fmt.Sprint(r.Header, r.URL))
	}))
	defer elsewhere.Close()
	var paths []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere.URL+"/file", http.StatusTemporaryRedirect)
		case "/name": // the same server by another name
			http.Redirect(w, r, strings.Replace("http://"+r.Host, "127.0.0.1", "localhost", 1)+"/here", http.StatusFound)
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusMovedPermanently)
		}
	}))
	defer api.Close()
	const token = "t0p-s3cret"
	client := &http.Client{Transport: pooled(t, newStore(), newPool(t, api.URL, token), outgoing.Options{}, sash.PerMinute(100))}
	fetch := func(url string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(req)
	}
	for _, path := range []string{"/away", "/name", "/moved"} {
		res, err := fetch(api.URL + path)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", path, err)
		}
		_ = res.Body.Close()
		for r := res; r != nil; r = r.Request.Response {
			if strings.Contains(fmt.Sprint(r.Request.Header), token) {
				t.Errorf("%s: the response returns the credential: %v", path, r.Request.Header)
			}
		}
	}
	if len(leaked) != 1 || strings.Contains(leaked[0], token) {
		t.Errorf("another host got %q", leaked)
	}
	signed := "Bearer " + token
	want := []string{"/away " + signed, "/name " + signed, "/here ", "/moved " + signed, "/here " + signed}
	if fmt.Sprint(paths) != fmt.Sprint(want) {
		t.Errorf("the API got %q, want %q", paths, want)
	}
	for _, url := range []string{elsewhere.URL, strings.Replace(api.URL, "http", "https", 1)} {
		//nolint:bodyclose // there is no answer
		if _, err := fetch(url); err == nil || !strings.Contains(err.Error(), "the credentials of the pool are for http://127.0.0.1") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if len(leaked) != 1 {
		t.Errorf("a request that is not for the API was sent: %q", leaked)
	}
}

// A user can set the credential in another way. The caller's request stays as it was.
func TestACredentialIsSetByAFunction(t *testing.T) {
	pool, err := outgoing.NewPool(apiTest, hmacKey, []string{"k3y"}, func(req *http.Request, credential string) {
		req.Header.Set("X-Api-Key", credential)
	})
	if err != nil {
		t.Fatal(err)
	}
	var got http.Header
	rt := pooled(t, newStore(), pool, outgoing.Options{Base: handled(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })}, sash.PerMinute(5))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, apiTest+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got.Get("X-Api-Key") != "k3y" || got.Get("Authorization") != "" {
		t.Errorf("the API got %v", got)
	}
	if len(req.Header) != 0 || len(res.Request.Header) != 0 {
		t.Errorf("the request has %v, and that of the response %v", req.Header, res.Request.Header)
	}
}

// Errors of wrong pools say which credential is wrong, and never show one.
func TestWrongPools(t *testing.T) {
	good := "g00d-t0ken"
	for name, c := range map[string]struct {
		origin      string
		key         []byte
		credentials []string
		want        string
	}{
		"no credentials":       {apiTest, hmacKey, nil, "0 credentials"},
		"too many":             {apiTest, hmacKey, tokens(sash.MaxAny + 1), "257 credentials"},
		"an empty one":         {apiTest, hmacKey, []string{good, ""}, "credential 2 of 2 is empty"},
		"a line break":         {apiTest, hmacKey, []string{good + "\n"}, "credential 1 of 1 begins or ends with white space"},
		"another header field": {apiTest, hmacKey, []string{good + "\r\nX-Admin: 1"}, "credential 1 of 1 has the byte 0x0d at position 10"},
		"a zero byte":          {apiTest, hmacKey, []string{good + "\x00x"}, "has the byte 0x00"},
		"not ASCII":            {apiTest, hmacKey, []string{good + "é"}, "has the byte 0xc3"},
		"one twice":            {apiTest, hmacKey, []string{good, "b", good}, "credentials 1 and 3 are the same"},
		"a short HMAC key":     {apiTest, hmacKey[:31], []string{good}, "31 bytes"},
		"no origin":            {"", hmacKey, []string{good}, "the origin of a pool"},
		"no scheme":            {"api.github.com", hmacKey, []string{good}, "the origin of a pool"},
		"a path":               {"https://api.github.com/v3", hmacKey, []string{good}, "the origin of a pool"},
		"another scheme":       {"ftp://api.github.com", hmacKey, []string{good}, "the origin of a pool"},
		"a password":           {"https://u:" + good + "@api.github.com", hmacKey, []string{good}, "the origin of a pool"},
	} {
		_, err := outgoing.NewPool(c.origin, c.key, c.credentials, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), good) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	pool := newPool(t, apiTest, good)
	for name, call := range map[string]outgoing.Call{
		"an account": {Key: "a", Pool: pool, Account: "b"},
		"also":       {Key: "a", Pool: pool, Also: []sash.Subject{{Key: "b", Cost: 1}}},
	} {
		rt, err := outgoing.New(newStore(), func(*http.Request) (outgoing.Call, error) { return call, nil }, nil, sash.PerMinute(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := get(t.Context(), rt); err == nil || !strings.Contains(err.Error(), "a Call with a Pool") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A credential is in nothing that is printed, and in no error.
func TestACredentialIsNowhere(t *testing.T) {
	const token = "t0p-s3cret"
	pool := newPool(t, apiTest, token)
	var logged bytes.Buffer
	call := outgoing.Call{Key: "github", Pool: pool}
	for _, h := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(h).Info("pool", "pool", pool, "call", call)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		_, _ = fmt.Fprintf(&logged, format+format+format+format, pool, *pool, call, &call)
	}
	if err := json.NewEncoder(&logged).Encode(pool); err != nil { //nolint:staticcheck // that nothing is exported is what this shows
		t.Fatal(err)
	}
	rt := pooled(t, newStore(), pool, outgoing.Options{Mode: outgoing.Refuse, Base: failing{}}, sash.PerMinute(1))
	for range 2 { // an error of the transport behind, and a refusal
		_, err := get(t.Context(), rt)
		if err == nil {
			t.Fatal("no error")
		}
		for ; err != nil; err = errors.Unwrap(err) {
			_, _ = fmt.Fprintf(&logged, "%v %+v %#v", err, err, err)
		}
	}
	for _, form := range []string{token, fmt.Sprintf("%x", token), fmt.Sprintf("%q", token)} {
		if strings.Contains(logged.String(), form) {
			t.Errorf("%q is in %s", form, logged.String())
		}
	}
}

// failing is a transport whose error describes the request.
type failing struct{}

func (failing) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("cannot send %v", req.Header)
}

// A booked request whose credential is dropped while it waits is sent with another.
func TestACredentialIsDroppedWhileARequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(2)
		api := newTokenAPI(1000, time.Second, all...)
		rt := pooled(t, newStore(), newPool(t, apiTest, all...), outgoing.Options{Base: handled(api.ServeHTTP), Spread: -1}, sash.Every(5, 10*time.Second))
		var statuses sync.Map
		var requests sync.WaitGroup
		for i := range 20 {
			requests.Go(func() {
				status, err := get(t.Context(), rt)
				statuses.Store(i, fmt.Sprint(status, err))
			})
		}
		time.Sleep(5 * time.Second)
		api.revoke(all[0], true)
		requests.Wait()
		for i := range 20 {
			if s, _ := statuses.Load(i); s != "200 <nil>" {
				t.Errorf("request %d: %v", i, s)
			}
		}
		if n := api.denied[all[0]]; n < 1 || n > 5 {
			t.Errorf("the revoked token was sent %d times", n)
		}
	})
}

// A request that is sent although the store fails gets a credential too.
func TestAPoolWithoutAStore(t *testing.T) {
	all := tokens(3)
	api := newTokenAPI(1000, time.Minute, all...)
	store := &unavailable{}
	rt := pooled(t, store, newPool(t, apiTest, all...), outgoing.Options{
		Base:        handled(api.ServeHTTP),
		Unavailable: func(*http.Request, outgoing.Call, error) error { return nil },
	}, sash.PerMinute(1000))
	for range 100 {
		ok(t, rt)
	}
	if len(api.served) != 3 {
		t.Errorf("served by %v", api.served)
	}
}

type unavailable struct{}

func (unavailable) Decide(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, errors.New("connection refused")
}

// Slots are for all credentials of a pool together, also when a request has held its own for too long while it waited.
func TestThePoolSharesItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(3)
		var mu sync.Mutex
		now, most := 0, 0
		slow := func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
		}
		rt := pooled(t, newStore(), newPool(t, apiTest, all...), outgoing.Options{
			Base: handled(slow), Spread: -1, InFlight: sash.Every(2, 5*time.Second),
		}, sash.Every(1, 10*time.Second))
		var requests sync.WaitGroup
		for range 12 { // three at once would have room; the later ones wait for longer than a slot is held
			requests.Go(func() { ok(t, rt) })
		}
		requests.Wait()
		if most != 2 {
			t.Errorf("%d requests were in flight at once, want 2", most)
		}
	})
}
