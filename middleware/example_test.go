package middleware_test

import (
	"context"
	"fmt"
	"log"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/middleware"
)

// A message of a queue that is not HTTP or gRPC.
type message struct{ attributes map[string][]string }

// A consumer with 2 messages a minute for each tenant, and as many for all messages without a tenant.
func Example() {
	limiter, err := sash.New(memstore.New(nil), &sash.Options{Prefix: "queue"}, sash.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	tenant := middleware.Field[message]{
		Kind: "attribute", Name: "tenant",
		Values: func(m message) []string { return m.attributes["tenant"] },
	}
	key := middleware.FirstOf(tenant.Key(), middleware.Shared[message]("no tenant"))

	consume := func(ctx context.Context, m message) string {
		k, limited, err := key.Resolve(m)
		if err == nil && !limited {
			return "consumed"
		}
		var res sash.Result
		if err == nil {
			err = middleware.Within(ctx, 0, func(ctx context.Context) (err error) {
				res, err = limiter.Allow(ctx, k)
				return err
			})
		}
		switch {
		case err != nil && middleware.FailureOf(err) == middleware.StoreFailed:
			return "consumed without a limit" // FailOpen
		case err != nil:
			return "rejected: " + err.Error()
		case !res.Allowed:
			return "back to the queue"
		}
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
