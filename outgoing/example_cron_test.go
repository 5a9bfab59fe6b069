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

// A nightly job reads YouTube for eight regions, in processes that share one credential. Searches and
// uploads have buckets of 100 a day each, everything else shares a pool of 10,000 units, where one call
// costs 1 and another 100, and all are reset at midnight Pacific. The job uses at most 95 % of each:
// 9,500 units. On a refusal it reports what is left and when to retry, and stops; it does not sleep for
// hours. People who use the same credential have the rest.
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
	youtube, _ := outgoing.Vendor("youtube") // knows a quota that is used up from other refusals

	noon := func() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, pacific) }
	store := memstore.New(&memstore.Options{Now: noon}) // goredisstore.New(client, nil) for a fleet
	clientOf := func(share int) *http.Client {          // of one process, which may find share percent used
		route := func(req *http.Request) (outgoing.Call, error) {
			switch {
			case req.URL.Path == "/search":
				return outgoing.Call{Key: sash.Key("youtube", "search"), Share: share, Limits: hundred}, nil
			case req.URL.Path == "/videos" && req.Method == http.MethodPost:
				return outgoing.Call{Key: sash.Key("youtube", "upload"), Share: share, Limits: hundred}, nil
			}
			return outgoing.Call{Key: sash.Key("youtube", "pool"), Share: share, Cost: units[req.URL.Path]}, nil
		}
		transport, err := outgoing.New(store, route, &outgoing.Options{Refuse: true, Profile: youtube}, pool)
		if err != nil {
			log.Fatal(err)
		}
		return &http.Client{Transport: transport, Timeout: 10 * time.Second}
	}
	call := func(client *http.Client, method, path string) error {
		req, err := http.NewRequestWithContext(context.Background(), method, api.URL+path, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.Body.Close()
	}

	regions := []string{"US", "GB", "DE", "FR", "JP", "KR", "BR", "IN"}
	processes := make(map[string]*http.Client)
	for _, region := range regions {
		processes[region] = clientOf(95)
	}
	ingest := func() (pages int, err error) {
		for ; ; pages++ {
			region := regions[pages%len(regions)]
			for _, path := range []string{"/search", "/videos", "/videos", "/captions"} {
				if err := call(processes[region], http.MethodGet, path+"?regionCode="+region); err != nil {
					return pages, err
				}
			}
		}
	}
	pages, err := ingest()
	var limited *sash.LimitedError
	var cool *outgoing.CoolDownError
	switch {
	case errors.As(err, &limited):
		fmt.Printf("stopped after %d pages: %s has %d units left for this job, retry in %v\n",
			pages, limited.Key, limited.Result.Remaining, limited.Result.RetryAfter)
	case errors.As(err, &cool):
		fmt.Printf("stopped after %d pages: %s is cooling down for another %v\n", pages, cool.Key, cool.RetryAfter)
	default:
		log.Fatal(err)
	}

	people := clientOf(100)
	fmt.Println("captions for an editor:", call(people, http.MethodGet, "/captions"))
	fmt.Println("an upload:", call(people, http.MethodPost, "/videos"))
	for key, limit := range map[string]sash.Limit{"pool": pool, "search": hundred[0], "upload": hundred[0]} {
		limiter, err := sash.New(store, nil, limit)
		if err != nil {
			log.Fatal(err)
		}
		left, err := limiter.Peek(context.Background(), sash.Key("youtube", key))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d of %d left\n", key, left.Remaining, limit.Units)
	}
	// Unordered output:
	// stopped after 93 pages: youtube:pool has 12 units left for this job, retry in 12h0m0s
	// captions for an editor: <nil>
	// an upload: <nil>
	// pool: 412 of 10000 left
	// search: 6 of 100 left
	// upload: 99 of 100 left
}
