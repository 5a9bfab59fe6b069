package outgoing_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/outgoing"
	"example.com/sash/redisstore"
)

// A fleetJob is the work of one process of a fleet, with a transport, a store and connections of its own: workers that share
// the transport send requests for a time.
type fleetJob struct {
	Redis, API string
	Workers    int
	Limit      sash.Limit
	For        time.Duration
	Cold       bool          // each request has a connection of its own
	Spread     time.Duration // zero learns it
}

// A report is the result of a process.
type report struct {
	Status            map[int]int
	Shortest, Longest time.Duration // that a request took
}

func fetchStatus(ctx context.Context, rt http.RoundTripper, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

func (e fleetJob) run() (report, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DisableKeepAlives = e.Cold
	store := redisstore.New(redistest.Scripter(redistest.Dial(e.Redis)), nil)
	took := &stopwatch{base: base}
	rt, err := outgoing.New(store, outgoing.Everything("api"), &outgoing.Options{Base: took, Spread: e.Spread}, e.Limit)
	if err != nil {
		return report{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.For)
	defer cancel()
	var (
		mu     sync.Mutex
		r      = report{Status: map[int]int{}}
		failed error
		group  sync.WaitGroup
	)
	for range e.Workers {
		group.Go(func() {
			for ctx.Err() == nil {
				status, err := fetchStatus(ctx, rt, e.API)
				mu.Lock()
				if err == nil {
					r.Status[status]++
				} else if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
					failed = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	group.Wait()
	r.Shortest, r.Longest = took.shortest, took.longest
	return r, failed
}

// A stopwatch records what requests take, after they were sent.
type stopwatch struct {
	base              http.RoundTripper
	mu                sync.Mutex
	shortest, longest time.Duration // guarded by mu
}

func (s *stopwatch) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := time.Now()
	res, err := s.base.RoundTrip(req)
	d := time.Since(sent)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.longest = max(s.longest, d); s.shortest == 0 || d < s.shortest {
		s.shortest = d
	}
	return res, err
}

// start runs a job in n processes at once, for which transports that have nothing in common stand.
func start(t *testing.T, n int, job fleetJob) []report {
	t.Helper()
	reports, errs := make([]report, n), make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { reports[i], errs[i] = job.run() })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return reports
}

// arrivalFor is how long each fleet of TestNoRequestArrivesTooEarly sends: a minute in make test-arrival.
var arrivalFor = flag.Duration("arrival", 16*time.Second, "how long each fleet of the arrival tests sends requests")

// An API that counts each request when it arrives refuses none, however long and unequal the ways to it are, and nearly
// everything is sent that windows as much longer as the ways differ have room for.
func TestNoRequestArrivesTooEarly(t *testing.T) {
	const units, window = 25, 5 * time.Second
	long, tolerated := *arrivalFor >= time.Minute, 0
	if !long {
		tolerated = 1 // other tests run meanwhile, and a process that gets no processor is late
	}
	for _, cold := range []bool{false, true} {
		for _, jitter := range []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
			if !long && jitter != 100*time.Millisecond {
				continue // in make test-arrival
			}
			t.Run(fmt.Sprintf("cold %v, jitter %v", cold, jitter), func(t *testing.T) {
				t.Parallel()
				api := &strict{units: units, window: window, jitter: jitter}
				job := fleetJob{Redis: redistest.Start(t).Addr(), API: api.start(t), Workers: 4, For: *arrivalFor, Cold: cold, Limit: sash.Every(units, window)}
				reports := start(t, 3, job)

				spread := jitter
				if cold {
					spread *= 2
				}
				// A machine without a free core makes ways differ by more than the jitter.
				shortest, longest := reports[0].Shortest, reports[0].Longest
				for _, r := range reports {
					shortest, longest = min(shortest, r.Shortest), max(longest, r.Longest)
				}
				seen := max(spread, longest-shortest)
				allowed := units * arrivalFor.Seconds() / (window + seen).Seconds()
				t.Logf("%d served, %.1f %% of %.0f (the ways differ by %v, of which %v are the API's: %.1f %%); %d refused",
					api.served, 100*float64(api.served)/allowed, allowed, seen, spread,
					100*float64(api.served)/(units*arrivalFor.Seconds()/(window+spread).Seconds()), api.tooFew)
				if api.tooFew > tolerated {
					t.Errorf("the API refused %d requests", api.tooFew)
				}
				for _, r := range reports {
					if float64(r.Status[http.StatusOK]) < allowed/12 {
						t.Errorf("one of three processes sent %d requests of %d", r.Status[http.StatusOK], api.served)
					}
				}
				if float64(api.served) < 0.95*allowed {
					t.Errorf("%d requests were served, less than 95 %% of %.0f", api.served, allowed)
				}
			})
		}
	}
}

// The same with processes of their own and a real Redis, for longer in make test-arrival.
func TestAFleetLearnsALowerLimit(t *testing.T) {
	for fields, most := range map[bool]int{true: 6, false: 5} {
		t.Run(fmt.Sprintf("fields %v", fields), func(t *testing.T) {
			t.Parallel()
			lasts := 16 * time.Second
			if *arrivalFor >= time.Minute {
				lasts = 40 * time.Second
			}
			api := &strict{units: 25, window: 5 * time.Second, fields: stated(fields)}
			job := fleetJob{Redis: redistest.Start(t).Addr(), API: api.start(t), Workers: 4, For: lasts, Limit: sash.Every(25, 5*time.Second)}
			before := 0
			time.AfterFunc(lasts/3, func() { before = api.refusals(); api.tighten(10) })
			start(t, 3, job)
			t.Logf("%d refused before, %d afterwards", before, api.refusals())
			if n := api.refusals(); n > most {
				t.Errorf("the API refused %d requests, more than %d", n, most)
			}
		})
	}
}
