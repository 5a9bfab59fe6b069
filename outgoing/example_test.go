package outgoing_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// A client that waits for room, for as long as its timeout allows.
func Example() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	url := api.URL
	now := time.Now()
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	for range 26 {
		status, err := fetch(store, url)
		if err != nil {
			fmt.Println(err)
		} else if status != http.StatusOK {
			log.Fatal(status)
		}
	}
	// Output: x is constrained to 25 calls per 5 seconds; retry after 5.5s, which is past the deadline
}

// fetch is the example of README.md.
func fetch(store driver.Store, url string) (status int, failed error) {
	transport, err := outgoing.New(store, outgoing.Everything("x"), nil, sash.Every(25, 5*time.Second), sash.Every(300, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: 3 * time.Second}

	res, err := client.Get(url)
	var limited *sash.LimitedError
	var cool *outgoing.CoolDownError
	switch {
	case errors.As(err, &limited):
		return 0, limited // not sent: "x is constrained to 25 calls per 5 seconds; retry after 5.5s, ..."
	case errors.As(err, &cool):
		return 0, cool // not sent: the API asked one of the processes to stay away for cool.RetryAfter
	case err != nil:
		return 0, err // the store is unavailable (sash.ErrUnavailable), or the request failed
	}
	defer res.Body.Close()
	return res.StatusCode, nil // 429 is the API's own
}
