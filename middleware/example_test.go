package middleware_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/middleware"
)

// A message of a queue that is not HTTP or gRPC.
type message struct{ attributes map[string][]string }

// A consumer with 2 messages a minute for each tenant, as many for all messages without a tenant, and at most 5 messages
// at once.
func Example() {
	limiter, err := sash.New(memstore.New(nil), &sash.Options{Prefix: "queue"}, sash.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	tenant := middleware.Field[message]{
		Kind: "attribute", Name: "tenant",
		Values: func(m message) []string { return m.attributes["tenant"] },
	}
	gate, err := middleware.NewGate(limiter, []middleware.Layer[message]{
		{Name: "tenant", Key: middleware.FirstOf(tenant.Key(), middleware.Shared[message]("no tenant"))},
		{
			Name: "at once", Key: middleware.Shared[message]("all"), Charge: middleware.InFlight,
			Limits: []sash.Limit{sash.Every(5, 10*time.Minute)}, // each for ten minutes at most
		},
	}, middleware.GateOptions[message]{FailOpen: true})
	if err != nil {
		log.Fatal(err)
	}

	consume := func(ctx context.Context, m message) string {
		d, err := gate.Decide(ctx, m)
		switch {
		case err != nil && middleware.FailureOf(err) == middleware.StoreFailed:
			return "consumed without a limit" // FailOpen
		case err != nil:
			return "rejected: " + err.Error()
		case d.Limited() && !d.Result.Allowed:
			return "back to the queue"
		}
		defer d.Settle(ctx, middleware.Succeeded)
		return "consumed"
	}
	ann := message{map[string][]string{"tenant": {"ann"}}}
	for _, m := range []message{ann, ann, ann, {}} {
		fmt.Println(consume(context.Background(), m))
	}
	// Output:
	// consumed
	// consumed
	// back to the queue
	// consumed
}
