//go:build proxies

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

// A proxy is one of the examples, and how it is started.
type proxy struct {
	name    string   // its directory
	config  string   // the file to start with
	command []string // in which DIR is the directory of the configuration
	short   bool     // its answers do not have what is left, and it does not pass requests while Sash is away
	comment string   // of a line that passes requests while Sash is away
	gone    []string // beginnings of lines that refuse them
}

var (
	caddy   = []string{"caddy", "run", "--adapter", "caddyfile", "--config"}
	proxies = []proxy{
		{name: "nginx", config: "nginx.conf", command: []string{"nginx", "-p", "DIR", "-c"}, comment: "#error_page"},
		{name: "caddy", config: "Caddyfile", command: caddy, comment: "#reverse_proxy", gone: []string{"header Retry-After 1", `respond "The rate limit`}},
		{name: "caddy", config: "forward_auth.Caddyfile", command: caddy, short: true},
		{name: "haproxy", config: "haproxy.cfg", command: []string{"haproxy", "-db", "-f"},
			gone: []string{"http-request set-var(txn.sash_retry_after)", "http-request return status 503"}},
	}
)

// opened returns the configuration that passes requests while Sash is away, as its comments describe.
func (p *proxy) opened(t *testing.T, config string) string {
	t.Helper()
	var out strings.Builder
	found := 0
	for line := range strings.Lines(config) {
		text := strings.TrimSpace(line)
		switch {
		case p.comment != "" && strings.HasPrefix(text, p.comment):
			line = strings.Replace(line, "#", "", 1)
			found++
		case slices.ContainsFunc(p.gone, func(gone string) bool { return strings.HasPrefix(text, gone) }):
			line = ""
			found++
		}
		out.WriteString(line)
	}
	if want := len(p.gone) + len(strings.Fields(p.comment)); found != want {
		t.Fatalf("%d lines of %d that open the proxy were found", found, want)
	}
	return out.String()
}

// A site is an application behind a proxy that calls Sash.
type site struct {
	t        *testing.T
	proxy    *proxy
	listen   string // the proxy's address
	config   string // of the proxy
	requests atomic.Int64
	spoofed  int
}

// newSite returns a site whose proxy calls Sash at an address. The proxy is not started.
func newSite(t *testing.T, p *proxy, sash string) *site {
	t.Helper()
	s := &site{t: t, proxy: p, listen: freeAddress(t, 1)}
	application := httptest.NewServer(s)
	t.Cleanup(application.Close)
	config := string(readFile(t, filepath.Join(examples, p.name, p.config)))
	spaced := func(addr string) string { return strings.Replace(addr, ":", " ", 1) }
	for from, to := range map[string]string{"127.0.0.1:8000": s.listen, "127.0.0.1:8080": sash, "127.0.0.1:9000": application.Listener.Addr().String()} {
		if !strings.Contains(config, from) && !strings.Contains(config, spaced(from)) {
			t.Fatalf("%s is not in %s", from, p.config)
		}
		config = strings.NewReplacer(from, to, spaced(from), spaced(to)).Replace(config)
	}
	s.config = config
	return s
}

// start runs the real proxy until the test ends, or until it is stopped.
func (s *site) start(config string) *process {
	s.t.Helper()
	dir := s.t.TempDir()
	servertest.Check(s.t, os.CopyFS(dir, os.DirFS(filepath.Join(examples, s.proxy.name))))
	file := filepath.Join(dir, s.proxy.config)
	put(s.t, file, config)
	args := strings.Split(strings.ReplaceAll(strings.Join(s.proxy.command, "\n"), "DIR", dir), "\n")
	cmd := exec.Command(args[0], append(args[1:], file)...)
	cmd.Env = []string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
	p := start(s.t, cmd)
	p.ready(s.proxy.name, func() bool {
		conn, err := net.Dial("tcp", s.listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return p
}

type reply struct {
	status int
	header http.Header
	body   string
}

// The client keeps no connections, because the proxy at their other end may be gone.
var patient = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// send sends a request with headers of a client that pretends to be another one, to have other limits, and to be a
// client of Sash: its token would be wrong, and the answer 401.
func (s *site) send(method, target, body string) reply {
	s.t.Helper()
	s.spoofed++
	address, other := fmt.Sprintf("198.51.100.%d", s.spoofed%250), fmt.Sprint(s.spoofed)
	res, text := sendBy(s.t, patient, method, "http://"+s.listen+target, body, "X-Forwarded-For", address, "X-Real-IP",
		address, "Forwarded", address,
		"X-Forwarded-Uri", "/elsewhere/"+other, "X-Forwarded-Method", "NONE", "X-Forwarded-Host", other+".example",
		"X-Sash-Token", "guess", "Cookie", "a="+strings.Repeat("a", 2000))
	return reply{res.StatusCode, res.Header, text}
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

// until sends a request until it gets a status of the application, and 429 before.
func (s *site) until(target string, status int) (a reply) {
	s.t.Helper()
	servertest.Wait(s.t, "no request passes", func() bool {
		a = s.send("GET", target, "")
		return a.status == status
	})
	return a
}

// fill sends requests until the limit of n in the window is used up, and returns the reply to one more. It starts again
// if the requests took so long that the window has moved on.
func (s *site) fill(n int, window time.Duration, targets ...string) reply {
	s.t.Helper()
	for range 20 {
		first := s.until(targets[0], 200)
		began, before := time.Now(), s.requests.Load()
		s.wantLeft(first, n-1)
		for i := 1; i < n; i++ {
			s.wantLeft(s.send("GET", targets[i%len(targets)], ""), n-1-i)
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

// wantLeft checks that a request is admitted, and the fields have a limit with n units left. Other limits may have fewer.
func (s *site) wantLeft(a reply, n int) {
	s.t.Helper()
	state, policy := a.header.Get("RateLimit"), a.header.Get("RateLimit-Policy")
	fields := strings.Contains(state, fmt.Sprintf(`";r=%d;t=`, n)) && strings.Contains(policy, `"remote_address:5/2s";q=5;w=2`)
	if s.proxy.short {
		fields = state+policy == ""
	}
	if a.status != 200 || !fields || a.header.Get("Retry-After") != "" {
		s.t.Errorf("%+v, want 200 with %d left", a, n)
	}
}

// wantRefused checks a refusal, and returns its Retry-After.
func (s *site) wantRefused(a reply, limit string, most int) time.Duration {
	s.t.Helper()
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != 429 || err != nil || seconds < 1 || seconds > most ||
		len(a.header.Values("Retry-After"))+len(a.header.Values("RateLimit")) != 2 ||
		!strings.Contains(a.header.Get("RateLimit"), `"`+limit+`";r=0;t=`+strconv.Itoa(seconds)) || !strings.Contains(a.header.Get("RateLimit-Policy"), `"`+limit+`";q=`) {
		s.t.Fatalf("%+v, want 429 by %s with Retry-After of 1 to %d", a, limit, most)
	}
	return time.Duration(seconds) * time.Second
}

// wantUndecided sends a request while Sash does not answer: the client gets 503, and the application gets nothing.
func (s *site) wantUndecided() {
	s.t.Helper()
	before := s.requests.Load()
	if a := s.send("GET", "/", ""); a.status != 503 || a.header.Get("Retry-After") == "" || s.requests.Load() != before {
		s.t.Errorf("without Sash: %+v, want 503; %d requests reached the application", a, s.requests.Load()-before)
	}
}

func TestProxies(t *testing.T) {
	for i := range proxies {
		p := &proxies[i]
		t.Run(p.config, func(t *testing.T) {
			t.Parallel()
			args := []string{"--config", examples + "/" + p.name + "/policy.yaml", "--access", tempFile(t, "access.yaml", "anonymous: {allow: [decide]}\n")}
			sash := spawn(t, nil, args...)
			addr := strings.TrimPrefix(sash.url, "http://")
			s := newSite(t, p, addr)
			running := s.start(s.config)

			// The limit's units pass, one more request is refused, and passes after Retry-After.
			wait := s.wantRefused(s.fill(5, 2*time.Second, "/", "/a", "/b?domain=none&deny=401"), "remote_address:5/2s", 2)
			<-time.After(wait)
			if a := s.send("POST", "/form?x=%20y", "a=b"); a.status != 200 || a.body != "POST /form?x=%20y a=b" {
				t.Errorf("after Retry-After: %+v", a)
			}
			// Another spelling of a path has the same limit.
			s.wantRefused(s.fill(3, 10*time.Second, "/login", "//login", "/%6cogin?a=b", "/x/../login"), "path,remote_address:3/10s", 10)
			// The proxy does not change refusals of the application.
			for path, want := range map[string]int{"/forbidden": 403, "/broken": 500} {
				if a := s.until(path, want); a.body != "GET "+path+" " {
					t.Errorf("%s: %+v", path, a)
				}
			}

			// Sash stops, is back, hangs, and is killed.
			sash.stopped(t)
			s.wantUndecided()
			sash = spawn(t, nil, append(args, "--addr", addr)...)
			s.until("/", 200)
			_ = sash.cmd.Process.Signal(syscall.SIGSTOP)
			<-time.After(100 * time.Millisecond) // until every thread has stopped
			s.wantUndecided()
			_ = sash.cmd.Process.Kill()
			<-sash.ended
			s.wantUndecided()
			if p.short {
				return
			}

			// Pass requests meanwhile, as the configuration's comments describe.
			running.stop()
			s.start(p.opened(t, s.config))
			for range 7 {
				if a := s.send("POST", "/", "a=b"); a.status != 200 || a.body != "POST / a=b" || a.header.Get("RateLimit") != "" {
					t.Fatalf("without Sash, and open: %+v", a)
				}
			}
			spawn(t, nil, append(args, "--addr", addr)...)
			s.wantRefused(s.fill(5, 2*time.Second, "/"), "remote_address:5/2s", 2)
		})
	}
}
