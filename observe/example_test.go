package observe_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/observe"
)

// Refusals in the log, and metrics and spans by the program's OpenTelemetry SDK.
func Example() {
	store, ctx := memstore.New(nil), context.Background()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: stable})))

	metrics, err := observe.Metrics(nil) // nil is the global provider of OpenTelemetry
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(store, &sash.Options{
		Prefix:   "api",
		Observer: observe.All(observe.Log(slog.Default()), metrics, observe.Spans(nil)),
	}, sash.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	for _, cost := range []int64{60, 1} {
		res, err := limiter.AllowN(ctx, sash.Key("user", "ann@example.com"), cost)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed)
	}
	// Output:
	// true
	// level=INFO msg=refused prefix=api units=1 source=store limit=60/1m
	// false
}

// stable leaves out what differs from run to run.
func stable(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "duration", "retry_after":
		return slog.Attr{}
	}
	return a
}
