package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A call is one request as it happened, whatever a log says of it.
type call struct {
	client       string // whose limit it counts against
	address      string // from which it came, in one of its spellings
	edge         string // the proxy before the server
	start, took  float64
	method, path string
	status       int
	attack       bool
}

// traffic is what really happened over two days: people who read pages, half of them from IPv6, and, if there are attackers,
// those from noon on the first day until noon on the second.
func traffic(seed uint64, people, attackers int) (all []call) {
	random := rand.New(rand.NewPCG(seed, 7))
	pages := []string{"/", "/a", "/b", "/c", "/d", "/img/1.png", "/css/x.css"}
	for p := range people {
		c := call{client: fmt.Sprintf("10.%d.%d.7", p>>8, p&255)}
		if c.address = c.client; p%2 == 1 {
			c.client = fmt.Sprintf("2001:db8:%x:%x::/64", p>>8, p&255)
		}
		for range 1 + random.IntN(4) {
			at := random.Float64() * 2 * 86400
			for range 1 + random.IntN(20) {
				at += random.ExpFloat64() * 3
				if p%2 == 1 { // any address of the network
					c.address = fmt.Sprintf("2001:DB8:%x:%x:0:%x::%x", p>>8, p&255, random.IntN(1<<16), 1+random.IntN(1<<16))
				}
				c.start, c.took, c.method, c.path, c.status = at, random.ExpFloat64()*0.2, "GET", pages[random.IntN(len(pages))], 200
				if random.IntN(20) == 0 {
					c.method, c.path, c.status = "POST", "/login", []int{200, 200, 401}[random.IntN(3)]
				}
				all = append(all, c)
			}
		}
	}
	for a := range attackers {
		c := call{client: fmt.Sprintf("203.0.113.%d", a), method: "POST", path: "/login", status: 401, took: 0.01, attack: true}
		c.address = c.client
		for i := range 2000 {
			c.start = 43200 + float64(a) + float64(i%1000)*0.05 + float64(i/1000)*86400
			all = append(all, c)
		}
	}
	for i := range all {
		all[i].edge = fmt.Sprintf("198.51.100.%d", random.IntN(200))
	}
	return all
}

// written returns the calls as a log in the order in which they ended.
func written(calls []call, line func(c call, start, end time.Time) string) string {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b call) int { return int(1e6 * (a.start + a.took - b.start - b.took)) })
	var text strings.Builder
	for _, c := range calls {
		at := func(s float64) time.Time { return noon.Add(time.Duration(s * 1e9)).Truncate(time.Millisecond) }
		text.WriteString(line(c, at(c.start), at(c.start+c.took)) + "\n")
	}
	return text.String()
}

func nginxJSON(c call, start, end time.Time) string {
	return fmt.Sprintf(`{"msec":"%d.%03d","remote_addr":"%s","request":"%s %s HTTP/1.1","status":%d,"request_time":"%.3f"}`,
		end.Unix(), end.Nanosecond()/1e6, c.address, c.method, c.path, c.status, end.Sub(start).Seconds())
}

func nginxMain(c call, _, end time.Time) string {
	return fmt.Sprintf(`%s - - [%s] "%s %s HTTP/1.1" %d 7 "-" "curl" "%s"`,
		c.edge, end.Format("02/Jan/2006:15:04:05 -0700"), c.method, c.path, c.status, c.address)
}

func alb(c call, start, end time.Time) string {
	const form = "2006-01-02T15:04:05.000000Z"
	return fmt.Sprintf(`http %s app/lb/1 %s 10.0.0.1:80 0.000 %.3f 0.000 %d %[4]d 34 366 "%s http://example.com:80%s HTTP/1.1" "curl" - - arn:x "Root=1" "-" "-" 0 %s "forward" "-" "-"`,
		end.Format(form), net.JoinHostPort(c.address, "4711"), c.took, c.status, c.method, c.path, start.Format(form))
}

// refused returns how many calls a limit refuses, by its definition, and the clients.
func refused(calls []call, units int, window float64) (requests int, clients map[string]bool) {
	calls, clients = slices.Clone(calls), make(map[string]bool)
	slices.SortStableFunc(calls, func(a, b call) int { return int(1e6 * (a.start - b.start)) })
	admitted := make(map[string][]float64)
	for _, c := range calls {
		now := slices.DeleteFunc(admitted[c.client], func(at float64) bool { return at <= c.start-window })
		if len(now) < units {
			now = append(now, c.start)
		} else {
			requests++
			clients[c.client] = true
		}
		admitted[c.client] = now
	}
	return requests, clients
}

func names(calls []call) map[string]bool {
	all := make(map[string]bool)
	for _, c := range calls {
		all[c.client] = true
	}
	return all
}

// Behind many edges the clients are those that there really were, once the proxies are named as the warning says.
func TestClientsBehindEdges(t *testing.T) {
	calls := traffic(1, 600, 0)
	log := tempFile(t, "main.log", written(calls, nginxMain))
	code, out, _ := sash(t, "suggest", "--strict", log)
	ready := regexp.MustCompile(`: --trusted-proxies (\S+)`).FindStringSubmatch(out)
	if code != 3 || ready == nil {
		t.Fatalf("exit %d, %s", code, out)
	}
	code, out, _ = sash(t, "suggest", "--trusted-proxies", ready[1], log)
	if want := fmt.Sprintf("\n%d requests of %d clients in ", len(calls), len(names(calls))); code != 0 || !strings.Contains(out, want) || strings.Contains(out, "peers") {
		t.Errorf("exit %d, want %s: %s", code, want, out)
	}
}

// One request a second that takes 30 to 90 s is never two in a second.
func TestSlowRequestsAreAtTheirStarts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 7))
	var calls []call
	for i := range 600 {
		calls = append(calls, call{client: "192.0.2.7", address: "192.0.2.7", start: float64(i), took: 30 + 60*random.Float64(), method: "GET", path: "/", status: 200})
	}
	for name, line := range map[string]func(c call, start, end time.Time) string{"nginx": nginxJSON, "AWS": alb} {
		code, out, _ := sash(t, "replay", "--json", "--try", "2/1s", tempFile(t, "log", written(calls, line)))
		if code != 0 || !strings.Contains(out, `"requests":600,"refused":0,`) || !strings.Contains(out, `"first":"2026-10-24T12:00:00Z"`) {
			t.Errorf("%s: exit %d, %s", name, code, out)
		}
	}
	// In order of their ends, without durations, they would be.
	code, out, _ := sash(t, "replay", "--strict", "--try", "2/1s", tempFile(t, "log", written(calls, nginxMain)))
	if code != 3 || strings.Contains(out, " 0 (0.00%) ") || !strings.Contains(out, "Log $msec and $request_time") {
		t.Errorf("exit %d, %s", code, out)
	}
}

// An attack is called one, whether all of the log or only its route is looked at.
func TestAnAttackIsNamed(t *testing.T) {
	calls := traffic(2, 700, 10)
	log := tempFile(t, "log", written(calls, nginxJSON))
	for _, where := range []string{"", `path == "/login"`} {
		var s struct {
			Warnings []string
			Limits   []string
			Without  []string `json:"limits_without_cliffs"`
			Cliffs   []struct {
				Clients, Requests int
				Route             string
				Status            int
				Times             float64
				Limits            string `json:"limits_on_route"`
			}
		}
		code, out, _ := sash(t, "suggest", "--strict", "--json", "--where", where, log)
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != 3 || len(s.Cliffs) != 1 {
			t.Fatalf("%q: exit %d, %v: %s", where, code, err, out)
		}
		c := s.Cliffs[0]
		if c.Clients != 10 || c.Requests != 20000 || c.Route != "POST /login" || c.Status != 401 || c.Times < 5 {
			t.Errorf("%q: %+v", where, c)
		}
		if s.Limits[0] != "200/10s" || len(s.Without[0]) > len("20/10s") || !regexp.MustCompile(`^[1-9]/10s,\d/1h$`).MatchString(c.Limits) {
			t.Errorf("%q: %v, without them %v, on the route %v", where, s.Limits, s.Without, c.Limits)
		}
		if w := s.Warnings[0]; !strings.Contains(w, "10 clients, ") || !strings.Contains(w, "all POST /login, all answered 401, at ") {
			t.Errorf("%q: %s", where, w)
		}
	}
	// So are those of whom most are no faster than people, and those that change paths and answers.
	some, changing := slices.DeleteFunc(slices.Clone(calls), func(c call) bool {
		return c.attack && c.client >= "203.0.113.4" && int(math.Round(20*c.start))%50 != 0
	}), slices.Clone(calls)
	for i := range changing {
		if c := &changing[i]; c.attack {
			c.path, c.status = fmt.Sprintf("/%d", i%50), []int{200, 401, 404}[i%3]
			c.start += float64(c.client[len(c.client)-1]%2) * 3 * math.Mod(c.start-43200, 86400)
		}
	}
	for says, calls := range map[string][]call{"all POST /login, all answered 401, at ": some, "404 33%, at ": changing} {
		_, out, _ := sash(t, "suggest", "--strict", tempFile(t, "log", written(calls, nginxJSON)))
		if !strings.Contains(out, "WARNING: 10 clients, ") || !strings.Contains(out, says) {
			t.Errorf("%s: %s", says, out)
		}
	}
	// Without them nothing is.
	people := slices.DeleteFunc(calls, func(c call) bool { return c.attack })
	if code, out, _ := sash(t, "suggest", "--strict", tempFile(t, "log", written(people, nginxJSON))); code != 0 {
		t.Errorf("exit %d, %s", code, out)
	}
}

// What is proposed on the first day is judged on the second, by the definition and not by the program.
func TestProposalsJudgedOnTheSecondHalf(t *testing.T) {
	for i, attackers := range []int{0, 0, 0, 5, 20} {
		calls := traffic(uint64(10+i), 600+250*i, attackers)
		var days [2][]call
		for _, c := range calls {
			day := min(1, int(c.start)/86400)
			days[day] = append(days[day], c)
		}
		line := nginxJSON
		if i == 1 {
			line = alb
		}
		var s struct {
			Limits  []string
			Without []string `json:"limits_without_cliffs"`
		}
		_, out, _ := sash(t, "suggest", "--json", "--affect", "1%", tempFile(t, "log", written(days[0], line)))
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if (len(s.Without) > 0) != (attackers == 20) { // 5 are among the 1% that may be affected
			t.Errorf("log %d with %d attackers: %v, without %v", i, attackers, s.Limits, s.Without)
		}
		if len(s.Without) > 0 {
			s.Limits = s.Without
		}
		hit, lost, stopped := make(map[string]bool), 0, 0
		people := slices.DeleteFunc(slices.Clone(days[1]), func(c call) bool { return c.attack })
		attack := slices.DeleteFunc(slices.Clone(days[1]), func(c call) bool { return !c.attack })
		for j, window := range []float64{10, 3600} {
			var units int
			if _, err := fmt.Sscanf(s.Limits[j], "%d/", &units); err != nil {
				t.Fatal(err)
			}
			n, clients := refused(people, units, window)
			lost += n
			for c := range clients {
				hit[c] = true
			}
			n, _ = refused(attack, units, window)
			stopped = max(stopped, n)
		}
		share := float64(len(hit)) / float64(len(names(people)))
		t.Logf("log %d: %v, refuses %.2f%% of %d people, %d requests of %d, and %d of %d of an attack", i, s.Limits, 100*share, len(names(people)), lost, len(people), stopped, len(attack))
		if share > 0.025 || float64(stopped) < 0.9*float64(len(attack)) {
			t.Errorf("log %d", i)
		}
	}
}
