package outgoing_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"example.com/sash"
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
	rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Mode: outgoing.Refuse, Base: handled(answer(200))}, sash.PerDay(1))
	for range 3 {
		ok(t, rt)
	}
}
