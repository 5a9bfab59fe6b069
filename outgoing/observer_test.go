package outgoing_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

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
