package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// A client of an API that allows 25 calls per 5 seconds and 300 per minute: both windows must have room.
// The quota holds for requests of the http.Client, and for a function that calls the API in another way.
// Without room the function does not run, and the error says which limit refused. It is not the API's own 429,
// which is a response.
func Example_twoWindows() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	ctx := context.Background()

	now := time.Now()
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }}) // goredisstore.New(client, nil) for a fleet
	windows := []sash.Limit{sash.Every(25, 5*time.Second), sash.Every(300, time.Minute)}
	transport, err := outgoing.New(store, outgoing.Everything("x"), &outgoing.Options{
		Mode:   outgoing.Refuse,
		Spread: 100 * time.Millisecond, // one request takes so much longer to the API than another, at most
	}, windows...)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	limiter, err := sash.New(store, nil, windows...)
	if err != nil {
		log.Fatal(err)
	}

	for range 24 {
		res, err := client.Get(api.URL)
		if err != nil {
			log.Fatal(err)
		}
		if res.StatusCode == http.StatusTooManyRequests {
			fmt.Println("the API refused") // it can, when others use the same credential
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}

	for range 2 { // the 25th call and the 26th, of which one has room
		err = limiter.Do(ctx, "x", func(context.Context) error {
			fmt.Println("the function ran")
			return nil
		})
	}
	fmt.Println("limiter:", err)

	_, err = client.Get(api.URL) //nolint:bodyclose // there is no answer
	var limited *sash.LimitedError
	if !errors.As(err, &limited) {
		log.Fatal(err)
	}
	fmt.Println("client:", limited)
	for _, l := range limited.Result.Limits() {
		fmt.Println(l.Limit, "has", l.Remaining, "left")
	}
	// Output:
	// the function ran
	// limiter: x is constrained to 25 calls per 5 seconds; retry after 5s
	// client: x is constrained to 25 calls per 5 seconds; retry after 5.1s
	// 25/5s has 0 left
	// 300/1m has 275 left
}
