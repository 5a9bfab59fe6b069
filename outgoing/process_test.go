package outgoing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/outgoing"
	"example.com/sash/redisstore"
)

// childEnv holds an errand: with it, the test binary is one more process of a fleet.
const childEnv = "SASH_OUTGOING_CHILD"

// An errand is the work of one process.
type errand struct {
	Name, Redis, API string
	Workers, Calls   int
	Limit            sash.Limit
	Mode             outgoing.Mode
	For              time.Duration // instead of Calls: one transport for all workers, which send until then
	Cold             bool          // each request has a connection of its own
	Tokens           []string      // a pool of them, in place of one bucket
	Spread           time.Duration // zero learns it
	Pace             bool
}

// A report is the result of an errand.
type report struct {
	Status   map[int]int
	CoolDown time.Duration // of the last call that was not sent because of one
	Shortest time.Duration // that a request took, in together
	Longest  time.Duration
}

func TestMain(m *testing.M) {
	text, isChild := os.LookupEnv(childEnv)
	if !isChild {
		os.Exit(m.Run())
	}
	var e errand
	err := json.Unmarshal([]byte(text), &e)
	if err == nil {
		var r report
		if e.For > 0 {
			r, err = e.together()
		} else {
			r, err = e.run()
		}
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A timed store records when the last decision began, which is not later than the charge.
type timed struct {
	*redisstore.Store
	at time.Time
}

func (a *timed) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	a.at = time.Now()
	return a.Store.Decide(ctx, req)
}

// A stamped transport sends the name of the process, and the time of its decision, with each request.
type stamped struct {
	name  string
	store *timed
}

func (s stamped) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-Process", s.name)
	req.Header.Set("X-Decided", strconv.FormatInt(s.store.at.UnixNano(), 10))
	return http.DefaultTransport.RoundTrip(req)
}

// run sends the calls. Each worker has a transport of its own, so that it knows the time of its decision.
func (e errand) run() (report, error) {
	var (
		mu     sync.Mutex
		r      = report{Status: map[int]int{}}
		failed error
		group  sync.WaitGroup
	)
	for range e.Workers {
		store := &timed{Store: redisstore.New(redistest.Scripter(redistest.Dial(e.Redis)), nil)}
		rt, err := outgoing.New(store, outgoing.Everything("api"), &outgoing.Options{Mode: e.Mode, Base: stamped{e.Name, store}}, e.Limit)
		if err != nil {
			return r, err
		}
		group.Go(func() {
			for range e.Calls {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.API, nil)
				var res *http.Response
				if err == nil {
					res, err = rt.RoundTrip(req)
				}
				mu.Lock()
				var cool *outgoing.CoolDownError
				switch {
				case errors.As(err, &cool):
					r.CoolDown = cool.RetryAfter
				case err != nil:
					failed = err
				default:
					res.Body.Close()
					r.Status[res.StatusCode]++
				}
				mu.Unlock()
				cancel()
			}
		})
	}
	group.Wait()
	return r, failed
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

// together sends requests for a time, by workers that share a transport.
func (e errand) together() (report, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DisableKeepAlives = e.Cold
	store := redisstore.New(redistest.Scripter(redistest.Dial(e.Redis)), nil)
	route, err := e.route()
	if err != nil {
		return report{}, err
	}
	took := &stopwatch{base: base}
	rt, err := outgoing.New(store, route, &outgoing.Options{Mode: e.Mode, Base: took, Spread: e.Spread, Pace: e.Pace}, e.Limit)
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

// route charges all requests to one bucket, or to a pool.
func (e errand) route() (outgoing.Route, error) {
	if len(e.Tokens) == 0 {
		return outgoing.Everything("api"), nil
	}
	pool, err := outgoing.NewPool(e.API, hmacKey, e.Tokens, nil)
	return func(*http.Request) (outgoing.Call, error) { return outgoing.Call{Key: "api", Pool: pool}, nil }, err
}

// start runs errands in processes of their own, all at once.
func start(t *testing.T, errands ...errand) []report {
	t.Helper()
	reports, errs := make([]report, len(errands)), make([]error, len(errands))
	var group sync.WaitGroup
	for i, e := range errands {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+string(text))
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &reports[i])
			}
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			errs[i] = err
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return reports
}

// A ledger is an API that records every request: when it arrived, and the longest time since a decision.
type ledger struct {
	mu       sync.Mutex
	arrivals []time.Time
	delay    time.Duration // the longest
	from     map[string]int
	refuse   bool
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	decided, _ := strconv.ParseInt(req.Header.Get("X-Decided"), 10, 64)
	l.delay = max(l.delay, now.Sub(time.Unix(0, decided)))
	l.arrivals = append(l.arrivals, now)
	l.from[req.Header.Get("X-Process")]++
	if l.refuse {
		w.Header().Set("Retry-After", "1000")
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// most returns the most requests that arrived in any window.
func (l *ledger) most(window time.Duration) int {
	charges := make([]judge.Charge, len(l.arrivals))
	for i, at := range l.arrivals {
		charges[i] = judge.Charge{From: at.UnixNano(), To: at.UnixNano(), Units: 1}
	}
	full, _ := judge.Fullest(charges, int64(window), 0)
	return int(full.Units)
}

// Requests arrive at the API some time after they were charged, and that time varies. So N in any window W at the
// store are N in any W less the longest of these times at the API.
func TestTwoProcessesShareOneQuota(t *testing.T) {
	redis, api := redistest.Start(t), &ledger{from: map[string]int{}}
	server := httptest.NewServer(api)
	defer server.Close()
	const units, window = 40, 1500 * time.Millisecond
	job := errand{Name: "first", Redis: redis.Addr(), API: server.URL, Workers: 4, Calls: 15, Limit: sash.Every(units, window)}
	second := job
	second.Name = "second"
	reports := start(t, job, second)

	if n := reports[0].Status[http.StatusOK] + reports[1].Status[http.StatusOK]; n != 120 || len(api.arrivals) != n {
		t.Errorf("%d of 120 calls were answered, and %d arrived", n, len(api.arrivals))
	}
	if api.from["first"] != 60 || api.from["second"] != 60 {
		t.Errorf("both have to make progress: %v", api.from)
	}
	slices.SortFunc(api.arrivals, time.Time.Compare)
	if took := api.arrivals[119].Sub(api.arrivals[0]); took < 2*window-api.delay {
		t.Errorf("120 calls took %v", took)
	}
	within := max(window-api.delay, time.Millisecond)
	if n := api.most(within); n > units {
		t.Errorf("%d requests arrived within %v; the longest took %v; the limit is %v", n, within, api.delay, job.Limit)
	}
	t.Logf("at most %d in any %v; the longest took %v", api.most(within), within, api.delay)
}

func TestOneProcessLearnsACoolDownAndTheOtherHoldsBack(t *testing.T) {
	redis, api := redistest.Start(t), &ledger{from: map[string]int{}, refuse: true}
	server := httptest.NewServer(api)
	defer server.Close()
	job := errand{Name: "first", Redis: redis.Addr(), API: server.URL, Workers: 1, Calls: 1, Limit: sash.PerHour(5000), Mode: outgoing.Refuse}
	if r := start(t, job); r[0].Status[http.StatusTooManyRequests] != 1 {
		t.Fatalf("the first process: %+v", r[0])
	}
	job.Name, job.Workers, job.Calls = "second", 2, 3
	r := start(t, job)[0]
	if r.CoolDown <= 900*time.Second || r.CoolDown > 1000*time.Second || len(r.Status) != 0 || api.from["second"] != 0 {
		t.Errorf("the second process sent %d requests: %+v", api.from["second"], r)
	}
}
