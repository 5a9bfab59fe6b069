package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// Many workers of a crawler, in any number of processes, share a pool of access tokens with 5,000 calls an hour each. Each
// request gets the token that has most room, and when none has it waits for the first. The store has hashes of the tokens,
// under a key of the application, and never a token. One of them is revoked: no request fails.
func Example_crawler() {
	var mu sync.Mutex
	served, denied := map[string]int{}, 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if token := r.Header.Get("Authorization"); token == "Bearer revoked" {
			denied++
			w.WriteHeader(http.StatusUnauthorized)
		} else {
			served[token]++
		}
	}))
	defer api.Close()

	hmacKey := []byte("kept with the application's other secrets")
	pool, err := outgoing.NewPool(api.URL, hmacKey, []string{"t0ken-a", "t0ken-b", "revoked"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	route := func(*http.Request) (outgoing.Call, error) {
		return outgoing.Call{Key: "github", Pool: pool}, nil
	}
	github, _ := outgoing.Vendor("github")
	store, perToken := memstore.New(nil), sash.PerHour(5000) // goredisstore.New(client, nil) for a fleet
	transport, err := outgoing.New(store, route, &outgoing.Options{Profile: github, Retries: outgoing.Retries{Most: 3}}, perToken)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}

	for page := range 100 {
		status, err := crawl(context.Background(), client, fmt.Sprintf("%s/page/%d", api.URL, page))
		var out *outgoing.CoolDownError
		switch {
		case errors.Is(err, outgoing.ErrCredentials) && errors.As(err, &out):
			log.Fatalf("all tokens are revoked; come back in %v", out.RetryAfter)
		case err != nil:
			log.Fatal(err)
		case status != http.StatusOK:
			log.Fatalf("page %d: %d", page, status)
		}
	}
	fmt.Println(served["Bearer t0ken-a"]+served["Bearer t0ken-b"], "pages by two tokens; the revoked one was sent", denied, "time")
	// Output: 100 pages by two tokens; the revoked one was sent 1 time
}

// crawl fetches a page and returns the status.
func crawl(ctx context.Context, client *http.Client, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}
