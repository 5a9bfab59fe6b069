package outgoing_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/outgoing"
)

// arrivalFor is how long each fleet of TestNoRequestArrivesTooEarly sends: a minute in make test-arrival.
var arrivalFor = flag.Duration("arrival", 16*time.Second, "how long each fleet of the arrival tests sends requests")

// A strict API admits at most units requests in any window, counted exactly when they arrive, and says nothing of it.
type strict struct {
	jitter time.Duration // of the way to it, and of a new connection once more
	fields bool          // it describes its quota, unlike most
	mu     sync.Mutex
	units  int
	window time.Duration
	log    []time.Time // of the requests in the window, guarded by mu
	served int
	tooFew int // refused
}

func (s *strict) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(upTo(s.jitter)) // still on its way
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.log) > 0 && !s.log[0].After(now.Add(-s.window)) {
		s.log = s.log[1:]
	}
	refuse := len(s.log) >= s.units
	if !refuse {
		s.log = append(s.log, now)
	}
	if s.fields {
		w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, s.units, int(s.window.Seconds())))
		reset := s.log[0].Add(s.window).Sub(now)
		w.Header().Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, max(0, s.units-len(s.log)), int(math.Ceil(reset.Seconds()))))
	}
	if refuse {
		s.tooFew++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.served++
}

func upTo(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }

// start serves the API. Its new connections take up to jitter longer.
func (s *strict) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(s)
	server.Listener = slow{server.Listener, s.jitter}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

type slow struct {
	net.Listener
	jitter time.Duration
}

func (l slow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &slowConn{Conn: conn, delay: upTo(l.jitter)}, err
}

type slowConn struct {
	net.Conn
	delay time.Duration
	once  sync.Once
}

func (c *slowConn) Read(b []byte) (int, error) {
	c.once.Do(func() { time.Sleep(c.delay) })
	return c.Conn.Read(b)
}

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
				job := errand{Redis: redistest.Start(t).Addr(), API: api.start(t), Workers: 4, For: *arrivalFor, Cold: cold,
					Limit: sash.Every(units, window), Mode: outgoing.Wait}
				reports := start(t, job, job, job)

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
				if float64(api.served) < 0.95*allowed {
					t.Errorf("%d requests were served, less than 95 %% of %.0f", api.served, allowed)
				}
			})
		}
	}
}
