package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The thresholds for a group of clients to be a Cliff.
const (
	singleMinded  = 0.9  // the share of one route, or of one status, among a client's requests
	ofOthers      = 0.5  // the largest share of that route or status among all other requests
	cliffRequests = 20   // requests of each client
	cliffShare    = 0.01 // of all requests
	cliffFactor   = 1.5  // the factor by which a limit is lower without the group
	cliffGap      = 4    // the peak of a client far above the rest, as a multiple of the next lower peak
	cliffMost     = 0.1  // the largest share of the clients that may be so far above the rest
)

// A Cliff is a group of clients whose peaks set the proposed limits, and who differ from the others in route, status or peak.
type Cliff struct {
	Clients  int     `json:"clients"`
	Requests int64   `json:"requests"`
	Share    float64 `json:"share"`
	// Route is the route that they request, or "" for several. Status is the response status, or 0 for several.
	Route  string `json:"route,omitempty"`
	Status int64  `json:"status,omitempty"`
	// Times is the short-window peak that nine in ten of them stay within, as a multiple of the highest peak of all others.
	Times float64 `json:"times"`
	// OnRoute is the pair of limits for the route alone, computed from all other requests. It is empty if there are none.
	OnRoute string `json:"limits_on_route,omitempty"`

	mix                string // of the first of them
	members            []uint32
	route              uint32
	onRoute, andStatus int64 // the client's requests for Route, and those answered with Status
}

// String returns a sentence without a full stop.
func (c *Cliff) String() string {
	text := fmt.Sprintf("%d clients, %.1f%% of the requests", c.Clients, 100*c.Share)
	if c.Clients == 1 {
		text = strings.Replace(text, "clients", "client", 1)
	}
	most := func(n int64) string {
		if n == c.Requests {
			return "all"
		}
		return fmt.Sprintf("%.1f%% of them", 100*share(n, c.Requests))
	}
	if c.Route != "" {
		text += ", " + most(c.onRoute) + " " + c.Route
	}
	if c.Status > 0 {
		text += fmt.Sprintf(", %s answered %d", most(c.andStatus), c.Status)
	}
	if c.Status == 0 && c.mix != "" {
		text += ", one of them answered " + c.mix
	}
	if c.Times >= cliffFactor {
		text += fmt.Sprintf(", at %.1f times the rate of anyone else", c.Times)
	}
	return text
}

// Cliffs returns the groups that set the limits of a suggestion, the largest first, and the suggestion without these groups.
func (s *Suggestion) Cliffs(caps Caps) ([]*Cliff, *Suggestion, error) {
	cliffs, out := s.groups(), make([]bool, len(s.heavy))
	for _, c := range cliffs {
		for _, m := range c.members {
			out[m] = true
		}
	}
	rest := s.trace.subset(func(e *event) bool { return !out[e.client] })
	if len(cliffs) == 0 || rest.Clients() == 0 {
		return nil, nil, nil
	}
	without, err := rest.Suggest(caps, s.Limits[0].Window, s.Limits[1].Window)
	if err != nil {
		return nil, nil, err
	}
	lower := func(was, is int64) bool { return float64(was) >= cliffFactor*float64(is) }
	pair := without.Limits
	if !lower(s.Limits[0].Units, pair[0].Units) && !lower(s.Limits[1].Units, pair[1].Units) {
		return nil, nil, nil
	}
	cliffs = slices.DeleteFunc(cliffs, func(c *Cliff) bool {
		usual := func(d *Demand) int64 {
			slices.SortFunc(c.members, func(a, b uint32) int { return cmp.Compare(d.byClient[a], d.byClient[b]) })
			return d.byClient[c.members[len(c.members)*9/10]]
		}
		c.Times = float64(usual(s.Burst)) / float64(without.Burst.Most)
		return usual(s.Burst) <= pair[0].Units && usual(s.Sustained) <= pair[1].Units
	})
	for _, c := range cliffs {
		others := rest.subset(func(e *event) bool { return c.Route != "" && e.route == c.route })
		if own, err := others.Suggest(caps, pair[0].Window, pair[1].Window); err == nil {
			c.OnRoute = own.Limits[0].String() + "," + own.Limits[1].String()
		}
	}
	return cliffs, without, nil
}

// gap returns the lowest peak of the few clients that are far above all others, if there are any.
func (d *Demand) gap() int64 {
	for i := len(d.Peaks) - int(cliffMost*float64(len(d.Peaks))); i > 0 && i < len(d.Peaks); i++ {
		if d.Peaks[i] >= max(cliffRequests, cliffGap*d.Peaks[i-1]) {
			return d.Peaks[i]
		}
	}
	return math.MaxInt64
}

func (s *Suggestion) groups() (all []*Cliff) {
	type deed struct {
		route  string // "" for several
		status int64
	}
	t := s.trace
	mine, routes, statuses := make([]int64, len(t.clients)), make([]int64, len(t.routes)), make(map[int64]int64)
	for i := range t.events {
		e := &t.events[i]
		if routes[e.route]++; e.route == t.clients[e.client].route {
			mine[e.client]++
		}
	}
	found, fast := make(map[deed]*Cliff), [2]int64{s.Burst.gap(), s.Sustained.gap()}
	for i := range t.clients {
		c, d, answered := &t.clients[i], deed{}, int64(0)
		most := func(n int64) bool { return float64(n) >= singleMinded*float64(c.requests) }
		if most(mine[i]) {
			d.route = t.routes[c.route]
		}
		for _, s := range c.statuses {
			if statuses[s.code] += s.n; most(s.n) {
				d.status, answered = s.code, s.n
			}
		}
		usual := d.route == "" && d.status < 400 && s.Burst.byClient[i] < fast[0] && s.Sustained.byClient[i] < fast[1]
		if c.requests < cliffRequests || usual {
			continue
		}
		g := found[d]
		if g == nil {
			g = &Cliff{Route: d.route, Status: d.status, route: c.route, mix: c.mix()}
			found[d] = g
			all = append(all, g)
		}
		g.members, g.Requests = append(g.members, uint32(i)), g.Requests+c.requests
		g.onRoute, g.andStatus = g.onRoute+mine[i], g.andStatus+answered
	}
	all = slices.DeleteFunc(all, func(g *Cliff) bool {
		g.Clients, g.Share = len(g.members), share(g.Requests, t.counts.Requests)
		alike := statuses[g.Status] - g.andStatus // requests of others
		if onRoute := routes[g.route] - g.onRoute; g.Status < 400 || g.Route != "" && onRoute < alike {
			alike = onRoute
		}
		if g.Route == "" && g.Status < 400 { // these clients differ in their routes
			alike = 0
		}
		return g.Share < cliffShare || 2*g.Clients > len(t.clients) || float64(alike) > ofOthers*float64(t.counts.Requests-g.Requests)
	})
	slices.SortFunc(all, func(a, b *Cliff) int { return cmp.Compare(b.Requests, a.Requests) })
	return all
}

type statusCount struct{ code, n int64 }

func (c *client) mix() string {
	var all []string
	for _, s := range slices.SortedFunc(slices.Values(c.statuses), func(a, b statusCount) int { return cmp.Compare(b.n, a.n) }) {
		if s.code > 0 {
			all = append(all, fmt.Sprintf("%d %.0f%%", s.code, 100*share(s.n, c.requests)))
		}
	}
	return strings.Join(all[:min(3, len(all))], ", ")
}
