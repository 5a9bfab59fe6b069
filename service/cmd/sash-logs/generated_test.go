package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A call is one request as it happened, whatever a log says of it.
type call struct {
	client       string
	start, took  float64
	method, path string
	status       int
	attack       bool
}

// traffic is what really happened over two days: people who read pages, half of them from IPv6, and attackers from noon on the
// first day until noon on the second.
func traffic(people, attackers int) (all []call) {
	random := rand.New(rand.NewPCG(2, 7))
	pages := []string{"/", "/a", "/b", "/c", "/d", "/img/1.png", "/css/x.css"}
	for p := range people {
		c := call{client: fmt.Sprintf("10.%d.%d.7", p>>8, p&255)}
		if p%2 == 1 {
			c.client = fmt.Sprintf("2001:db8:%x:%x::7", p>>8, p&255)
		}
		for range 1 + random.IntN(4) {
			at := random.Float64() * 2 * 86400
			for range 1 + random.IntN(20) {
				at += random.ExpFloat64() * 3
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
		for i := range 2000 {
			c.start = 43200 + float64(a) + float64(i%1000)*0.05 + float64(i/1000)*86400
			all = append(all, c)
		}
	}
	return all
}

// written returns the calls as a log of nginx, in the order in which they ended.
func written(calls []call) string {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b call) int { return int(1e6 * (a.start + a.took - b.start - b.took)) })
	var text strings.Builder
	for _, c := range calls {
		end := noon.Add(time.Duration((c.start + c.took) * 1e9))
		fmt.Fprintf(&text, `{"msec":"%d.%03d","remote_addr":"%s","request":"%s %s HTTP/1.1","status":%d,"request_time":"%.3f"}`+"\n",
			end.Unix(), end.Nanosecond()/1e6, c.client, c.method, c.path, c.status, c.took)
	}
	return text.String()
}

// An attack is called one, whether all of the log or only its route is looked at.
func TestAnAttackIsNamed(t *testing.T) {
	calls := traffic(700, 10)
	log := tempFile(t, "log", written(calls))
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
		_, out, _ := sash(t, "suggest", "--strict", tempFile(t, "log", written(calls)))
		if !strings.Contains(out, "WARNING: 10 clients, ") || !strings.Contains(out, says) {
			t.Errorf("%s: %s", says, out)
		}
	}
	// Nobody is named if so many may be affected, or without them.
	if _, out, _ := sash(t, "suggest", "--affect", "2%", log); strings.Contains(out, "10 clients, ") || !strings.Contains(out, " 11/10s,39/1h\n") {
		t.Error(out)
	}
	people := slices.DeleteFunc(calls, func(c call) bool { return c.attack })
	if code, out, _ := sash(t, "suggest", "--strict", tempFile(t, "log", written(people))); code != 0 {
		t.Errorf("exit %d, %s", code, out)
	}
}
