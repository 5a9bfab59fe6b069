package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
)

func TestTemplates(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		pattern      bool
		want         string
	}{
		{"GET", "/users/7", false, "GET /users/{id}"},
		{"GET", "/users/7/orders/0012", false, "GET /users/{id}/orders/{id}"},
		{"GET", "/x/123e4567-e89b-12d3-a456-426614174000", false, "GET /x/{id}"},
		{"GET", "/commit/08c5c6e1f2", false, "GET /commit/{id}"},
		{"GET", "/commit/08c5c6e", false, "GET /commit/08c5c6e"}, // could be a name
		{"GET", "/cafebabe/facade", false, "GET /cafebabe/facade"},
		{"GET", "/v2/a-1/2015-05-17", false, "GET /v2/a-1/2015-05-17"},
		{"GET", "/", false, "GET /"},
		{"", "/a/1", false, "/a/{id}"},
		{"GET", "", false, "GET"},
		{"GET", "/users/{id}", true, "GET /users/{id}"},
		{"HEAD", "GET /users/{id}", true, "HEAD /users/{id}"},
		{"GET", "/files/", true, "GET /files/{...}"},
		{"GET", "/files/{$}", true, "GET /files/"},
	} {
		if got := template(tt.method, tt.path, tt.pattern); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
}

// visits returns a log with known routes: pages with an image, polls that many clients send once in ten seconds, few
// logins, slow searches, and large downloads.
func visits() (b *Builder) {
	b = &Builder{}
	r := rand.New(rand.NewPCG(7, 4))
	add := func(after time.Duration, client int, route string, bytes int64, seconds float64) {
		b.Add(noon.Add(after).UnixMicro(), Selection{Key: fmt.Sprint("client ", client), Cost: 1, Route: route, Bytes: bytes, Seconds: seconds})
	}
	for c := range 100 {
		start := time.Duration(r.Int64N(int64(9 * time.Hour)))
		for i := range 360 {
			add(start+time.Duration(i)*10*time.Second, c, "GET /poll", 100, 0.01)
		}
		for i := range 10 {
			at := start + time.Duration(i)*5*time.Minute
			add(at, c, "GET /page/{id}", 5000, 0.05)
			for range 3 {
				add(at+time.Second, c, "GET /logo.png", 5000, 0.01)
			}
			if i%4 == 0 {
				add(at+2*time.Second, c, "GET /search", 3000, 2)
				add(at+3*time.Second, c, "POST /login", 300, 0.1)
				add(at+4*time.Second, c, "GET /files/{id}", 5_000_000, 0.1)
			}
		}
	}
	return b
}

func TestTheRoutesThatDiffer(t *testing.T) {
	tr := visits().Trace()
	s := suggest(t, tr, Caps{}, 10*time.Second, time.Hour)
	found := func(most int) (all []string) {
		routes, err := tr.RoutesThatDiffer(t.Context(), s, most)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Clients != 100 || r.Factor < RouteFactor {
				t.Errorf("%+v", r)
			}
			all = append(all, fmt.Sprint(r.Method, " ", r.Path, ": ", r.Reason))
		}
		return all
	}
	want := []string{"GET /poll: drives", "POST /login: writes", "GET /search: slow", "GET /files/{id}: large"}
	if got := found(9); !slices.Equal(got, want) {
		t.Errorf("%v, want %v (pages and images are like the whole)", got, want)
	}
	if got := found(2); !slices.Equal(got, want[:2]) {
		t.Errorf("at most two: %v", got)
	}
}

// A log of one route has no route that differs from the others.
func TestAnOnlyRouteDoesNotDiffer(t *testing.T) {
	var b Builder
	for c := range 30 {
		for i := range 100 {
			b.Add(noon.Add(time.Duration(c+i*60)*time.Second).UnixMicro(), Selection{Key: fmt.Sprint(c), Cost: 1, Route: "GET /items/{id}"})
		}
	}
	b.Add(noon.UnixMicro(), Selection{Key: "1", Cost: 1, Route: "GET /"})
	tr := b.Trace()
	s := suggest(t, tr, Caps{}, 10*time.Second, time.Hour)
	if routes, err := tr.RoutesThatDiffer(t.Context(), s, 4); err != nil || len(routes) != 0 {
		t.Errorf("%+v, %v", routes, err)
	}
}

// The limits of the parts refuse nobody whom the general pair spares, and none of them can be smaller: by the definition,
// over random routes.
func TestTheLimitsOfPartsSpareWhomThePairSpares(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 5))
	part := func(route string) int { return strings.IndexByte("abc", route[len(route)-1]) }
	for range 10 {
		all := random(r)
		for i := range all {
			all[i].path = "GET /" + string("aabccccc"[r.IntN(8)])
		}
		tr := made(all)
		s := suggest(t, tr, Caps{Clients: 0.1}, 10*time.Second, 5*time.Minute)
		d, err := tr.Divide(t.Context(), s, 3, part)
		if err != nil {
			t.Fatal(err)
		}
		sacrificed := limitedBy(all, s.Limits)
		divided, err := tr.Divided(t.Context(), part, func(part int, client string) string { return fmt.Sprint(client, " in ", part) })
		if err != nil {
			t.Fatal(err)
		}
		candidate, refused, affected := Candidate{}, int64(0), make(map[string]bool)
		for i, p := range d.Parts {
			var own []call
			for _, c := range all {
				if part(c.path) == i {
					own = append(own, c)
				}
			}
			n, _, requests := brute(own, byAddress, bytesOf, p.Limits)
			refused += n
			if p.Requests != requests || p.Clients != made(own).Clients() {
				t.Errorf("%+v, want %d requests", p, requests)
			}
			for name := range limitedBy(own, p.Limits) {
				affected[name] = true
				if !sacrificed[name] {
					t.Errorf("%v refuse %s, which %v spare", p.Limits, name, s.Limits)
				}
			}
			for j := range p.Limits {
				less := slices.Clone(p.Limits)
				if less[j].Units--; less[j].Units < 1 || less[1].Units < less[0].Units || p.Clients < leastRouteClients {
					continue
				}
				spared := true
				for name := range limitedBy(own, less) {
					spared = spared && sacrificed[name]
				}
				if spared {
					t.Errorf("part %d: %v would do instead of %v", i, less, p.Limits)
				}
			}
			candidate.Rules = append(candidate.Rules, Rule{Limits: p.Limits})
		}
		outcomes := outcomesOf(t, divided, []Candidate{candidate}, nil)
		if outcomes[0].Refused != refused || len(affected) != d.Affected {
			t.Errorf("%d refused to %d clients; the definition says %d to %d", outcomes[0].Refused, d.Affected, refused, len(affected))
		}
	}
}

// Nothing is known of what no request was in, and requests that no part limits are in none.
func TestPartsWithoutRequests(t *testing.T) {
	var b Builder
	for c := range 30 {
		for i := range 100 {
			b.Add(noon.Add(time.Duration(c+i*60)*time.Second).UnixMicro(), Selection{Key: fmt.Sprint(c), Cost: 1, Route: []string{"GET /", ""}[i%2]})
		}
	}
	tr := b.Trace()
	s := suggest(t, tr, Caps{}, 10*time.Second, time.Hour)
	part := func(route string) int { return strings.Index(route, "GET") }
	d, err := tr.Divide(t.Context(), s, 3, part)
	if err != nil {
		t.Fatal(err)
	}
	if d.Parts[0].Requests != 1500 || d.Parts[1].Requests+d.Parts[2].Requests != 0 || !slices.Equal(d.Parts[1].Limits, s.Limits) || !slices.Equal(d.Parts[2].Limits, s.Limits) {
		t.Errorf("%+v, and the general pair is %v", d.Parts, s.Limits)
	}
	divided, err := tr.Divided(t.Context(), part, func(_ int, client string) string { return client })
	if err != nil {
		t.Fatal(err)
	}
	if c := divided.Counts(); c.Requests != 1500 || c.Unlimited != 1500 {
		t.Errorf("%+v", c)
	}
}

// limitedBy returns the clients that limits refuse, by the definition.
func limitedBy(all []call, limits []sash.Limit) map[string]bool {
	limited := make(map[string]bool)
	for _, c := range all {
		if _, known := limited[c.address]; known {
			continue
		}
		var own []call
		for _, other := range all {
			if other.address == c.address {
				own = append(own, other)
			}
		}
		n, _, _ := brute(own, byAddress, bytesOf, limits)
		limited[c.address] = n > 0
	}
	for name, is := range limited {
		if !is {
			delete(limited, name)
		}
	}
	return limited
}
