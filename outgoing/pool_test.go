package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

var hmacKey = []byte("thirty-two bytes for all of these tests")

// A tokenAPI is a strict API for each of its tokens, and knows which of them are revoked.
type tokenAPI struct {
	answer func(w http.ResponseWriter, r *http.Request, token string) bool // reports whether it has answered

	mu      sync.Mutex
	of      map[string]*strict
	revoked map[string]bool
	denied  map[string]int // with 401
}

func newTokenAPI(limit int, window time.Duration, tokens ...string) *tokenAPI {
	a := &tokenAPI{of: map[string]*strict{}, revoked: map[string]bool{}, denied: map[string]int{}}
	for _, token := range tokens {
		a.of[token] = &strict{units: limit, window: window}
	}
	return a
}

func (a *tokenAPI) revoke(token string, revoked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked[token] = revoked
}

func (a *tokenAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	api := a.of[token]
	if api == nil || a.revoked[token] {
		a.denied[token]++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if a.answer == nil || !a.answer(w, r, token) {
		api.ServeHTTP(w, r)
	}
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
	return must(outgoing.NewPool(origin, hmacKey, credentials, nil))(t)
}

// pooled returns a transport whose requests are all charged to a pool.
func pooled(t *testing.T, store driver.Store, pool *outgoing.Pool, opts outgoing.Options, limits ...sash.Limit) *outgoing.Transport {
	t.Helper()
	route := func(*http.Request) (outgoing.Call, error) { return outgoing.Call{Key: "github", Pool: pool}, nil }
	return newRoundTripper(t, store, route, &opts, limits...)
}

const apiTest = "http://api.test"

// A pool has the limits of all its credentials together, and no credential gets more requests than its own: each request
// waits for the credential that is free first.
func TestAPoolUsesEveryCredentialUpToItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(5)
		api := newTokenAPI(4, 10*time.Second, all...)
		rt := pooled(t, newStore(), newPool(t, apiTest, all...), outgoing.Options{Base: handled(api.ServeHTTP), Spread: -1}, sash.Every(4, 10*time.Second))
		began := time.Now()
		for i := range 60 {
			if ok(t, rt); i == 19 && time.Since(began) != 0 {
				t.Errorf("the first 20 requests took %v", time.Since(began))
			}
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("60 requests at 20 in 10 s took %v", took)
		}
		for token, of := range api.of {
			if of.served != 12 || of.tooFew != 0 {
				t.Errorf("%d requests with %s, want 12, and %d were refused", of.served, token, of.tooFew)
			}
		}
	})
}

// A request that is sent although the store fails gets a credential too.
func TestAPoolWithoutAStore(t *testing.T) {
	all := tokens(3)
	api := newTokenAPI(1000, time.Minute, all...)
	rt := pooled(t, downStore(), newPool(t, apiTest, all...), outgoing.Options{
		Base:        handled(api.ServeHTTP),
		Unavailable: func(*http.Request, outgoing.Call, error) error { return nil },
	}, sash.PerMinute(1000))
	for range 100 {
		ok(t, rt)
	}
	for token, of := range api.of {
		if of.served == 0 {
			t.Errorf("%s was not used", token)
		}
	}
}

// Slots are for all credentials of a pool together, also when a request has held its own for too long while it waited.
func TestThePoolSharesItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tokens(3)
		slow := &slowAPI{takes: time.Second / 2}
		rt := pooled(t, newStore(), newPool(t, apiTest, all...), outgoing.Options{
			Base: slow, Spread: -1, InFlight: sash.Every(2, 5*time.Second),
		}, sash.Every(1, 10*time.Second))
		var requests sync.WaitGroup
		for range 12 { // three at once would have room; the later ones wait for longer than a slot is held
			requests.Go(func() { ok(t, rt) })
		}
		requests.Wait()
		if most := slow.most.Load(); most != 2 {
			t.Errorf("%d requests were in flight at once, want 2", most)
		}
	})
}

// The keys are those that a variable without a value makes.
func TestAKeyOfNothingIsAnErrorWhenTheTransportIsMade(t *testing.T) {
	for name, key := range map[string]string{
		"an empty key":           "",
		"a blank key":            " \t",
		"a key of no parts":      sash.Key(),
		"a key of an empty part": sash.Key(""),
		"only empty parts":       sash.Key("", ""),
		"an empty tag":           sash.KeyTogether("", ""),
		"a missing token":        sash.Key("api", sash.Secret(hmacKey, "")),
		"a missing name":         sash.Key("", "v1"),
		"a hole":                 sash.Key("api", "", "v1"),
		"too long":               strings.Repeat("k", sash.MaxKeyLength+1),
	} {
		if _, err := outgoing.New(newStore(), outgoing.Everything(key), nil, sash.PerDay(1)); !errors.Is(err, sash.ErrInvalidKey) {
			t.Errorf("%s: Everything(%q) gives %v", name, key, err)
		}
	}
	if _, err := outgoing.New(newStore(), nil, nil, sash.PerDay(1)); !errors.Is(err, sash.ErrInvalidKey) {
		t.Errorf("no route: %v", err)
	}
}

func TestExemptRequestsAreNotLimited(t *testing.T) {
	route := func(*http.Request) (outgoing.Call, error) { return outgoing.Call{}, outgoing.ErrExempt }
	rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Refuse: true, Base: handled(answer(200))}, sash.PerDay(1))
	for range 3 {
		ok(t, rt)
	}
}

// prefixes are those of the decisions that an observer saw.
type prefixes []string

func (p *prefixes) Observe(_ context.Context, d sash.Decision) { *p = append(*p, d.Prefix) }

// An observer sees that a request takes a slot and is charged.
func TestAnObserverSeesTheDecisionsOfATransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(prefixes)
		opts := &outgoing.Options{Base: &slowAPI{}, Prefix: "crawler", InFlight: sash.Every(5, time.Minute), Observer: seen}
		transport := newRoundTripper(t, memstore.New(nil), outgoing.Everything("x"), opts, sash.PerMinute(10))
		ok(t, transport)
		if want := (prefixes{"crawler:in-flight", "crawler"}); !slices.Equal(*seen, want) {
			t.Errorf("the observer saw decisions of %v, want %v", *seen, want)
		}
	})
}
