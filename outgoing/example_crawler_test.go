package outgoing_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// Many workers of a crawler share 5,000 calls an hour for each access token, and wait for room. The store
// has a hash of the token, under a key of the application, and never the token.
func Example_crawler() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", "587")
	}))
	defer api.Close()
	ctx := context.Background()

	hmacKey := []byte("kept with the application's other secrets")
	bucket := func(authorization string) string {
		return sash.Key("github", sash.Secret(hmacKey, strings.TrimPrefix(authorization, "Bearer ")))
	}
	route := func(req *http.Request) (outgoing.Call, error) {
		return outgoing.Call{Key: bucket(req.Header.Get("Authorization"))}, nil
	}
	github, _ := outgoing.Vendor("github")
	store, perToken := memstore.New(nil), sash.PerHour(5000) // goredisstore.New(client, nil) for a fleet
	transport, err := outgoing.New(store, route, &outgoing.Options{
		Profile: github,
		Retries: outgoing.Retries{Most: 3},
	}, perToken)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	limiter, err := sash.New(store, nil, perToken)
	if err != nil {
		log.Fatal(err)
	}

	key := bucket("Bearer t0ken")
	if _, err := limiter.AllowN(ctx, key, 4412); err != nil { // what the other workers have used by now
		log.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer t0ken")
	res, err := client.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()

	left, err := limiter.Peek(ctx, key) // spends none
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(left.Remaining, "calls left under", key)
	// Output: 587 calls left under github:MR52E9R0WNxBkHRP9cbYec0du6S_YvKXWFGBV1GeCZM
}
