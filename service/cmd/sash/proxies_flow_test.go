//go:build proxies

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

// A site is an application behind a proxy that calls Sash.
type site struct {
	t        *testing.T
	proxy    *proxy
	url      string
	requests atomic.Int64 // that reached the application
	spoofed  int
}

// A reply is the proxy's answer to a client.
type reply struct {
	status int
	header http.Header
	body   string
}

func (a reply) String() string { return fmt.Sprintf("%d %v %s", a.status, a.header, a.body) }

// send sends a request with headers of a client that pretends to be another one, to have other limits, and to be a
// client of Sash: its token would be wrong, and the answer 401.
func (s *site) send(method, target, body string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+target, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	s.spoofed++
	for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded"} {
		req.Header.Set(name, fmt.Sprintf("198.51.100.%d", s.spoofed%250))
	}
	req.Header.Set("X-Forwarded-Uri", fmt.Sprintf("/elsewhere/%d", s.spoofed))
	req.Header.Set("X-Forwarded-Method", "NONE")
	req.Header.Set("X-Forwarded-Host", fmt.Sprintf("%d.example", s.spoofed))
	req.Header.Set("X-Sash-Token", "guess")
	req.Header.Set("Cookie", "a="+strings.Repeat("a", 2000))
	res, err := browser.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(text)}
}

// The application answers with the request that it received. It has refusals and errors of its own.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	body, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/forbidden":
		w.WriteHeader(http.StatusForbidden)
	case "/broken":
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
}

// fill sends requests until the limit of n in the window is used up, and returns the reply to one more. It starts again
// if the requests took so long that the window has moved on.
func (s *site) fill(n int, window time.Duration, targets ...string) reply {
	s.t.Helper()
	for range 20 {
		var first reply
		servertest.Wait(s.t, "no request passes", func() bool {
			first = s.send("GET", targets[0], "")
			return first.status == 200
		})
		began, before := time.Now(), s.requests.Load()
		s.wantLeft(first, n-1)
		for i := 1; i < n; i++ {
			if a := s.send("GET", targets[i%len(targets)], ""); a.status != 200 {
				s.t.Fatalf("request %d of %d is refused: %v", i+1, n, a)
			} else {
				s.wantLeft(a, n-1-i)
			}
		}
		last := s.send("GET", targets[n%len(targets)], "")
		if time.Since(began) >= window {
			continue
		}
		if got := s.requests.Load() - before; got != int64(n-1) {
			s.t.Errorf("%d requests came to the application after the first, want %d", got, n-1)
		}
		return last
	}
	s.t.Fatalf("%d requests take longer than %v, each time", n, window)
	return reply{}
}

// wantLeft checks that the fields of an admitted request have a limit with n units left. Other limits may have fewer.
func (s *site) wantLeft(a reply, n int) {
	s.t.Helper()
	state, policy := a.header.Get("RateLimit"), a.header.Get("RateLimit-Policy")
	if s.proxy.short {
		if state+policy != "" {
			s.t.Errorf("fields that the short form does not give: %v", a)
		}
		return
	}
	if !strings.Contains(state, fmt.Sprintf(`";r=%d;t=`, n)) || !strings.Contains(policy, `"remote_address:5/2s";q=5;w=2`) {
		s.t.Errorf("RateLimit %q, RateLimit-Policy %q: want %d left", state, policy, n)
	}
	if a.header.Get("Retry-After") != "" {
		s.t.Errorf("a request that passes has Retry-After: %v", a)
	}
}

// wantRefused checks a refusal, and returns its Retry-After.
func (s *site) wantRefused(a reply, limit string, most int) time.Duration {
	s.t.Helper()
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != 429 || err != nil || seconds < 1 || seconds > most {
		s.t.Fatalf("want 429 with Retry-After of 1 to %d: %v", most, a)
	}
	if state := a.header.Get("RateLimit"); !strings.Contains(state, `"`+limit+`";r=0;t=`+strconv.Itoa(seconds)) {
		s.t.Errorf("RateLimit %q, want %s with nothing left for %d s", state, limit, seconds)
	}
	if policy := a.header.Get("RateLimit-Policy"); !strings.Contains(policy, `"`+limit+`";q=`) {
		s.t.Errorf("RateLimit-Policy %q, want %s", policy, limit)
	}
	if n := len(a.header.Values("Retry-After")) + len(a.header.Values("RateLimit")); n != 2 {
		s.t.Errorf("fields are there twice: %v", a)
	}
	return time.Duration(seconds) * time.Second
}

// wantUndecided sends a request while Sash does not answer: the client gets 503, and the application gets nothing.
func (s *site) wantUndecided() {
	s.t.Helper()
	before := s.requests.Load()
	if a := s.send("GET", "/", ""); a.status != 503 || a.header.Get("Retry-After") == "" {
		s.t.Errorf("without Sash: %v, want 503", a)
	}
	if s.requests.Load() != before {
		s.t.Error("the request reached the application uncounted")
	}
}

// hang suspends a process, and returns what resumes it.
func (p *service) hang(t *testing.T) (resume func()) {
	t.Helper()
	signal := func(s syscall.Signal) {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	servertest.Wait(t, "a thread is still running", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatal(threads, err)
		}
		for _, name := range threads {
			status, err := os.ReadFile(name)
			if err == nil && !strings.Contains(string(status), "State:\tT") {
				return false
			}
		}
		return true
	})
	return func() { signal(syscall.SIGCONT) }
}

func TestProxies(t *testing.T) {
	for i := range proxies {
		p := &proxies[i]
		t.Run(p.config, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t, proxy: p}
			application := httptest.NewServer(s)
			defer application.Close()
			policy := examples + "/" + p.name + "/policy.yaml"
			access := tempFile(t, "access.yaml", "anonymous: {allow: [decide]}\n")
			sash := spawn(t, nil, "--config", policy, "--access", access)
			addr := strings.TrimPrefix(sash.url, "http://")
			listen := freeAddress(t)
			s.url = "http://" + listen
			config := p.read(t, listen, addr, strings.TrimPrefix(application.URL, "http://"))
			stop := p.start(t, listen, config)

			// The limit's units pass, one more request is refused, and passes after Retry-After.
			wait := s.wantRefused(s.fill(5, 2*time.Second, "/", "/a", "/b?domain=none&deny=401"), "remote_address:5/2s", 2)
			<-time.After(wait)
			if a := s.send("POST", "/form?x=%20y", "a=b"); a.status != 200 || a.body != "POST /form?x=%20y a=b" {
				t.Errorf("after Retry-After: %v", a)
			}
			// Another spelling of a path has the same limit.
			s.wantRefused(s.fill(3, 10*time.Second, "/login", "//login", "/%6cogin?a=b", "/x/../login"), "path,remote_address:3/10s", 10)
			// The proxy does not change refusals of the application.
			for path, want := range map[string]int{"/forbidden": 403, "/broken": 500} {
				servertest.Wait(t, "no request passes", func() bool {
					a := s.send("GET", path, "")
					if a.status != 429 && (a.status != want || a.body != "GET "+path+" ") {
						t.Fatalf("%s: %v", path, a)
					}
					return a.status == want
				})
			}

			// Sash hangs, stops, is back, and stops.
			resume := sash.hang(t)
			s.wantUndecided()
			resume()
			if err := sash.stop(t); err != nil {
				t.Error(err)
			}
			s.wantUndecided()
			sash = spawn(t, nil, "--config", policy, "--access", access, "--addr", addr)
			servertest.Wait(t, "Sash is there again, and no request passes", func() bool { return s.send("GET", "/", "").status == 200 })
			if err := sash.stop(t); err != nil {
				t.Error(err)
			}
			s.wantUndecided()
			stop()
			if p.short {
				return // this proxy has no such configuration
			}

			// Pass requests meanwhile, as the configuration's comments describe.
			p.start(t, listen, opened(t, p.name, config))
			for range 7 {
				if a := s.send("POST", "/", "a=b"); a.status != 200 || a.body != "POST / a=b" || a.header.Get("RateLimit") != "" {
					t.Fatalf("without Sash, and open: %v", a)
				}
			}
			spawn(t, nil, "--config", policy, "--access", access, "--addr", addr)
			s.wantRefused(s.fill(5, 2*time.Second, "/"), "remote_address:5/2s", 2)
		})
	}
}
