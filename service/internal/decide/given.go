package decide

import (
	"fmt"
	"strings"
	"sync"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// maxGiven is how many sets of given limits are kept ready for use.
const maxGiven = 1024

// Given returns a request of one part that brings its limits along. Its subject is the key, among all keys of such
// requests and apart from those of every domain: no rule, override or ban applies to it. Its domain is OfRequest. The
// limits slide, whatever the algorithm of rules that name none, and while the store is unavailable there is no decision.
// A nil cost is 1.
func Given(key string, limits []sash.Limit, cost *int64) Request {
	req := One(OfRequest, []config.Entry{{Key: "key", Value: key}}, cost)
	req.Parts[0].given = limits
	return req
}

// Subject names the subject of a request of one part, so that a port can keep requests on one subject in order. It is
// not the key that the store gets, and empty if there is no such domain.
func (d *Decider) Subject(req *Request) string {
	part := &req.Parts[0]
	if part.given != nil {
		return givenKey(part)
	}
	found, err := d.rules.Load().config.Find(req.Domain, part.Entries)
	if err != nil {
		return ""
	}
	return found.Key
}

// givenKey has fewer parts than the key of any domain and entries.
func givenKey(part *Part) string { return sash.Key(OfRequest, part.Entries[0].Value) }

// resolveGiven fills in the answer of a part that brings its limits along.
func (d *Decider) resolveGiven(r *rules, part *Part, a *Answer) (err error) {
	if a.Cost = part.Cost; part.ByRule {
		a.Cost = 1
	}
	if a.Cost < 1 {
		return fmt.Errorf("%w: %d units; a cost is at least 1", sash.ErrInvalidCost, a.Cost)
	}
	a.Key, a.Metric, a.need = givenKey(part), OfRequest, a.Cost
	if a.limits, err = r.given.ready(d, part.given); err != nil {
		return err
	}
	if err = a.limits.fits(a.need); err != nil {
		a.limits = nil
	}
	return err
}

// given keeps limits that requests bring along ready for use. It is safe for concurrent use.
type given struct {
	mu sync.Mutex
	of map[string]*limits // guarded by mu: by the texts of the limits
}

// ready returns limits ready for use. The error is sash.ErrInvalidLimit.
func (g *given) ready(d *Decider, own []sash.Limit) (*limits, error) {
	var name strings.Builder
	for _, l := range own {
		name.WriteString(l.String())
		name.WriteByte(' ')
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.of[name.String()]; l != nil {
		return l, nil
	}
	var opts sash.Options
	if err := config.Fit(&opts, own); err != nil {
		return nil, err
	}
	l, err := d.compileLimits(config.Place{}, &opts, own, failover.Modes{})
	if err != nil {
		return nil, err
	}
	if len(g.of) == maxGiven { // which callers choose: forget, and begin again
		clear(g.of)
	}
	g.of[name.String()] = l
	return l, nil
}
