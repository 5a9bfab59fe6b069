package outgoing_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// nothing are keys that a variable without a value makes.
func nothing() map[string]string {
	secret := sash.Secret([]byte("kept with the application's other secrets"), "")
	return map[string]string{
		"an empty key":           "",
		"a blank key":            " \t",
		"a key of no parts":      sash.Key(),
		"a key of an empty part": sash.Key(""),
		"only empty parts":       sash.Key("", ""),
		"an empty tag":           sash.KeyTogether("", ""),
		"a missing token":        sash.Key("api", secret),
		"a missing name":         sash.Key("", "v1"),
		"a hole":                 sash.Key("api", "", "v1"),
		"too long":               strings.Repeat("k", sash.MaxKeyLength+1),
	}
}

func TestAKeyOfNothingIsAnErrorWhenTheTransportIsMade(t *testing.T) {
	for name, key := range nothing() {
		if _, err := outgoing.New(newStore(), outgoing.Everything(key), nil, sash.PerDay(1)); !errors.Is(err, sash.ErrInvalidKey) {
			t.Errorf("%s: Everything(%q) gives %v", name, key, err)
		}
	}
	if _, err := outgoing.New(newStore(), nil, nil, sash.PerDay(1)); !errors.Is(err, sash.ErrInvalidKey) {
		t.Errorf("no route: %v", err)
	}
}

// A route that loses its key does not lose the limit: nothing is sent.
func TestARouteWithAKeyOfNothingFailsTheRequest(t *testing.T) {
	for name, key := range nothing() {
		for field, call := range map[string]outgoing.Call{
			"Key":     {Key: key},
			"Also":    {Key: "api", Also: []sash.Subject{{Key: key, Cost: 1}}},
			"Account": {Key: "api", Account: key},
		} {
			if field == "Account" && key == "" {
				continue // most APIs have none
			}
			sent := 0
			route := func(*http.Request) (outgoing.Call, error) { return call, nil }
			rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Base: counting{handled(answer(200)), &sent}}, sash.PerDay(1))
			if _, err := get(t.Context(), rt); !errors.Is(err, sash.ErrInvalidKey) || sent != 0 {
				t.Errorf("%s in %s: %v, and %d requests were sent", name, field, err, sent)
			}
		}
	}
}

func TestExemptRequestsAreNotLimited(t *testing.T) {
	route := func(*http.Request) (outgoing.Call, error) { return outgoing.Call{}, outgoing.ErrExempt }
	rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Refuse: true, Base: handled(answer(200))}, sash.PerDay(1))
	for range 3 {
		ok(t, rt)
	}
}

// The errors of requests without room name the bucket, the limit in words, the retry time, and why the call did
// not wait.
func TestARefusalReadsAsASentence(t *testing.T) {
	for name, c := range map[string]struct {
		opts   outgoing.Options
		within time.Duration
		want   string
		cause  error
	}{
		"refused":           {outgoing.Options{Refuse: true}, 0, "api is constrained to 1 call per 5 seconds; retry after 5s", nil},
		"with a prefix":     {outgoing.Options{Refuse: true, Prefix: "crawler"}, 0, "api is constrained to 1 call per 5 seconds; retry after 5s", nil},
		"past the deadline": {outgoing.Options{}, time.Second, "api is constrained to 1 call per 5 seconds; retry after 5s, which is past the deadline", context.DeadlineExceeded},
		"past MaxWait":      {outgoing.Options{MaxWait: time.Second}, 0, "api is constrained to 1 call per 5 seconds; retry after 5s: outgoing: the wait is longer than MaxWait", outgoing.ErrMaxWait},
	} {
		bubble(t, name, func(t *testing.T) {
			rt := newTransport(t, newStore(), answer(200), c.opts, sash.Every(1, 5*time.Second), sash.Every(300, time.Minute))
			ok(t, rt)
			ctx := t.Context()
			if c.within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.within)
				defer cancel()
			}
			_, err := get(ctx, rt)
			var limited *sash.LimitedError
			if !errors.As(err, &limited) || limited.Error() != c.want || !strings.HasSuffix(err.Error(), ": "+c.want) {
				t.Errorf("the error reads\n%v, want\n%s", err, c.want)
			}
			if c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("the cause is %v, want %v", errors.Unwrap(limited), c.cause)
			}
			if limited != nil && limited.Key != "api" {
				t.Errorf("the key is %q; the route gave api", limited.Key)
			}
		})
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
		res, err := (&http.Client{Transport: transport}).Get("http://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if want := (prefixes{"crawler:in-flight", "crawler"}); !slices.Equal(*seen, want) {
			t.Errorf("the observer saw decisions of %v, want %v", *seen, want)
		}
	})
}
