package httplimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// childEnv holds a job: with it, the test binary is one more process of a fleet.
const childEnv = "SASH_HTTPLIMIT_CHILD"

// A job is what one process of a fleet serves: requests at once, until each client has made its own.
type job struct {
	Addr               string
	Clients, Requests  int
	Failures, InFlight int64
}

// A tally is the result of a process.
type tally struct {
	Failed, Succeeded, Refused int64
	Most                       int64 // requests in the handlers of all processes at once
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	var j job
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &j)
	if err == nil {
		var seen tally
		if seen, err = j.run(); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(seen)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (j job) run() (tally, error) {
	server := redistest.Dial(j.Addr)
	limiter, err := sash.New(redisstore.New(redistest.Scripter(server), nil), nil, sash.Every(1, time.Hour))
	if err != nil {
		return tally{}, err
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{
		{Name: "failed", Key: httplimit.PeerAddress, Charge: httplimit.Failures, Limits: []sash.Limit{sash.PerHour(j.Failures)}},
		{Name: "at once", Key: httplimit.PeerAddress, Charge: httplimit.InFlight, Limits: []sash.Limit{sash.PerHour(j.InFlight)}},
	}, &httplimit.Options{Timeout: 20 * time.Second})
	if err != nil {
		return tally{}, err
	}
	var failed, succeeded, refused, most, odd atomic.Int64
	count := func(command string) int64 { // over all processes
		n, err := server.Do(command, "inside")
		if err != nil {
			odd.Add(1)
		}
		inside, _ := n.(int64)
		return inside
	}
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, before := count("INCR"), most.Load()
		for n > before && !most.CompareAndSwap(before, n) {
			before = most.Load()
		}
		count("DECR")
		answers(w, r)
	}))
	var group sync.WaitGroup
	for c := range j.Clients {
		group.Go(func() {
			for i := range j.Requests {
				status := []int{401, 200, 200}[(c+i)%3]
				r := httptest.NewRequest("POST", fmt.Sprintf("/?status=%d", status), nil)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				switch w.Code {
				case 401:
					failed.Add(1)
				case 200:
					succeeded.Add(1)
				case 429:
					refused.Add(1)
				default:
					odd.Add(1)
				}
			}
		})
	}
	group.Wait()
	if odd.Load() > 0 {
		err = fmt.Errorf("%d requests failed otherwise", odd.Load())
	}
	return tally{failed.Load(), succeeded.Load(), refused.Load(), most.Load()}, err
}

func TestProcessesShareFailuresAndRequestsInFlight(t *testing.T) {
	server := redistest.Start(t)
	const processes, allowed, atOnce = 3, 20, 4
	fleet := job{Addr: server.Addr(), Clients: 8, Requests: 60, Failures: allowed, InFlight: atOnce}
	text, err := json.Marshal(fleet)
	if err != nil {
		t.Fatal(err)
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		all   tally // guarded by mu
	)
	for range processes {
		group.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+string(text))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var seen tally
			if err == nil {
				err = json.Unmarshal(out, &seen)
			}
			if err != nil {
				t.Errorf("%v: %s", err, stderr.String())
			}
			mu.Lock()
			defer mu.Unlock()
			all.Failed += seen.Failed
			all.Succeeded += seen.Succeeded
			all.Refused += seen.Refused
			all.Most = max(all.Most, seen.Most)
		})
	}
	group.Wait()
	// The units that running attempts held are still free, and no more than those.
	rest := fleet
	rest.Clients, rest.Requests = 1, 3*allowed+3
	last, err := rest.run()
	if err != nil {
		t.Fatal(err)
	}
	if all.Failed < 1 || all.Failed+last.Failed != allowed {
		t.Errorf("%d attempts failed in all processes and %d after them, want %d together", all.Failed, last.Failed, allowed)
	}
	if all.Most < 1 || all.Most > atOnce {
		t.Errorf("%d requests were in flight at once, want at most %d", all.Most, atOnce)
	}
	if n := all.Failed + all.Succeeded + all.Refused; n != processes*8*60 || all.Succeeded == 0 {
		t.Errorf("%+v of %d", all, processes*8*60)
	}
}
