package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// Many workers of a crawler share 5,000 calls an hour for each access token, and wait for room.
func Example_crawler() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", "4999")
	}))
	defer api.Close()

	hmacKey := []byte("kept with the application's other secrets")
	bucket := func(token string) string { return sash.Key("github", sash.Secret(hmacKey, token)) }
	route := func(req *http.Request) (outgoing.Call, error) {
		return outgoing.Call{Key: bucket(req.Header.Get("Authorization"))}, nil
	}
	github, _ := outgoing.Vendor("github")
	store, perToken := memstore.New(nil), sash.PerHour(5000) // redisstore.New(...) for a fleet
	transport, err := outgoing.New(store, route, &outgoing.Options{
		Profile: github,
		Retries: outgoing.Retries{Most: 3},
	}, perToken)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}

	for range 3 {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, api.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer t0ken")
		res, err := client.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		_ = res.Body.Close()
	}

	// How many calls are left, without spending one:
	limiter, err := sash.New(store, nil, perToken)
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Peek(context.Background(), bucket("Bearer t0ken"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Remaining, "calls left")
	// Output: 4997 calls left
}

// Two windows, both of which must have room. A refusal names the one that had none, and is of another
// kind than the API's own 429.
func Example_twoWindows() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	transport, err := outgoing.New(memstore.New(nil), outgoing.Everything("x"),
		&outgoing.Options{Mode: outgoing.Refuse},
		sash.Every(25, 5*time.Second), sash.Every(300, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for i := range 26 {
		res, err := client.Get(api.URL)
		var limited *sash.LimitedError
		switch {
		case errors.As(err, &limited):
			fmt.Printf("call %d: %s is constrained to %s\n", i+1, limited.Key, limited.Limit)
			for _, l := range limited.Result.Limits() {
				fmt.Println(l.Limit.Name, "has", l.Remaining, "left")
			}
			continue
		case err != nil:
			log.Fatal(err)
		case res.StatusCode == http.StatusTooManyRequests:
			fmt.Println("the API refused")
		}
		_ = res.Body.Close()
	}
	// Output:
	// call 26: x is constrained to 25/5s
	// 25/5s has 0 left
	// 300/1m has 275 left
}

// A nightly job reads YouTube for eight regions. Searches and uploads have buckets of 100 a day each,
// everything else shares a pool of 10,000 units, where one call costs 1 and another 100, and all begin anew
// at midnight Pacific. The job fills at most 95 % of each, so that people who use the same credential find
// some left: 9,500 units. On a refusal it logs what is left and when to come back, and stops.
func Example_cron() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		log.Fatal(err)
	}
	pool := sash.PerCalendar(10_000, sash.CalendarDay, pacific)
	hundred := []sash.Limit{sash.PerCalendar(100, sash.CalendarDay, pacific)}
	units := map[string]int64{"/videos": 1, "/captions": 100}
	poolKey := sash.Key("youtube", "pool")
	route := func(req *http.Request) (outgoing.Call, error) {
		switch {
		case req.URL.Path == "/search":
			return outgoing.Call{Key: sash.Key("youtube", "search"), Share: 95, Limits: hundred}, nil
		case req.URL.Path == "/videos" && req.Method == http.MethodPost:
			return outgoing.Call{Key: sash.Key("youtube", "upload"), Share: 95, Limits: hundred}, nil
		}
		return outgoing.Call{Key: poolKey, Cost: units[req.URL.Path], Share: 95}, nil
	}
	noon := func() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, pacific) }
	store := memstore.New(&memstore.Options{Now: noon})
	youtube, _ := outgoing.Vendor("youtube") // knows a quota that is used up from other refusals
	transport, err := outgoing.New(store, route, &outgoing.Options{Mode: outgoing.Refuse, Profile: youtube}, pool)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}

	ingest := func() (pages int, err error) {
		for ; ; pages++ {
			region := []string{"US", "GB", "DE", "FR", "JP", "KR", "BR", "IN"}[pages%8]
			for _, path := range []string{"/search", "/videos", "/videos", "/captions"} {
				res, err := client.Get(api.URL + path + "?regionCode=" + region)
				if err != nil {
					return pages, err
				}
				_ = res.Body.Close()
			}
		}
	}

	pages, err := ingest()
	var limited *sash.LimitedError
	var cool *outgoing.CoolDownError
	switch {
	case errors.As(err, &limited):
		fmt.Printf("%d pages; %s has %d left for this job; retry in %v\n",
			pages, limited.Key, limited.Result.Remaining, limited.Result.RetryAfter)
	case errors.As(err, &cool):
		fmt.Printf("%d pages; the API asked to stay away for %v\n", pages, cool.RetryAfter)
	default:
		log.Fatal(err)
	}
	limiter, err := sash.New(store, nil, pool)
	if err != nil {
		log.Fatal(err)
	}
	left, err := limiter.Peek(context.Background(), poolKey)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(left.Remaining, "units left in the pool")
	// Output:
	// 93 pages; youtube:pool has 12 left for this job; retry in 12h0m0s
	// 512 units left in the pool
}
