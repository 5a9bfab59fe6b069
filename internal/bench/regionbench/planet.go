package regionbench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash/internal/redistest"
)

// delays are those of the ways between the regions and the home, in each direction. The home is in the first region's
// own city.
var delays = []time.Duration{time.Millisecond, 40 * time.Millisecond, 75 * time.Millisecond}

// perRegion is how many processes decide in each region.
const perRegion = 2

// A planet is a home and regions, all on this machine.
type planet struct {
	home     *redistest.Server
	replica  *redistest.Server // of the home, nil if there is none
	regions  []*region
	services []*service // perRegion of each region, after serve
}

type region struct {
	redis *redistest.Server
	way   *way // to the home
}

// newPlanet starts all servers. The caller stops them.
func newPlanet() (*planet, error) {
	home, err := redistest.Run()
	if err != nil {
		return nil, err
	}
	p := &planet{home: home}
	for _, delay := range delays {
		redis, err := redistest.Run()
		if err != nil {
			p.stop()
			return nil, err
		}
		r := &region{redis: redis}
		p.regions = append(p.regions, r)
		if r.way, err = newWay(home.Addr(), delay); err != nil {
			p.stop()
			return nil, err
		}
	}
	return p, nil
}

func (p *planet) stop() {
	for _, s := range p.services {
		s.stop()
	}
	for _, r := range p.regions {
		if r.way != nil {
			r.way.Close()
		}
		r.redis.Stop()
	}
	p.home.Stop()
	if p.replica != nil {
		p.replica.Stop()
	}
}

// flush empties all servers.
func (p *planet) flush() error {
	_, err := p.home.Do("FLUSHALL")
	for _, r := range p.regions {
		_, e := r.redis.Do("FLUSHALL")
		err = errors.Join(err, e)
	}
	return err
}

// in returns a decider of a region.
func (p *planet) in(region int, d decider) decider {
	d.Home, d.Near = p.regions[region].way.Addr(), p.regions[region].redis.Addr()
	return d
}

// An event is something that happens during a run.
type event struct {
	at time.Duration
	do func() error
}

// A run is what all calling processes did.
type run struct {
	begin   time.Time
	plans   []plan
	results []result // of each plan
}

// play starts a calling process for each plan, and lets events happen meanwhile.
func play(plans []plan, events ...event) (*run, error) {
	r := &run{plans: plans, results: make([]result, len(plans))}
	processes := make([]*process, len(plans))
	defer func() {
		for _, c := range processes {
			if c != nil {
				c.end()
			}
		}
	}()
	for i := range plans {
		var err error
		if processes[i], err = plans[i].begin(); err != nil {
			return nil, err
		}
	}
	r.begin = time.Now().Add(200 * time.Millisecond)
	for _, c := range processes {
		if err := c.to.Encode(r.begin); err != nil {
			return nil, err
		}
	}
	happened := make(chan error, 1)
	go func() {
		var err error
		slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
		for _, e := range events {
			time.Sleep(time.Until(r.begin.Add(e.at)))
			err = errors.Join(err, e.do())
		}
		happened <- err
	}()
	var err error
	for i, c := range processes {
		var e error
		r.results[i], e = c.result()
		err = errors.Join(err, e)
	}
	return r, errors.Join(err, <-happened)
}

// all returns the records of all processes for which something holds.
func (r *run) all(holds func(s *stream, c *record) bool) (some []record) {
	for i := range delays {
		some = append(some, r.of(i, holds)...)
	}
	return some
}

// of returns the records of a region for which something holds.
func (r *run) of(region int, holds func(s *stream, c *record) bool) (some []record) {
	for i := region * perRegion; i < (region+1)*perRegion; i++ {
		streams := r.plans[i].Streams
		some = append(some, of(r.results[i].Records, func(c *record) bool { return holds(&streams[c.Stream], c) })...)
	}
	return some
}

// errs returns what failed calls returned, and how often, in words.
func (r *run) errs() string {
	counts := map[string]int{}
	for _, res := range r.results {
		for e, n := range res.Errors {
			counts[e] += n
		}
		if res.Unmade > 0 {
			counts["not made, because too many waited"] += res.Unmade
		}
	}
	var all []string
	for e, n := range counts {
		all = append(all, fmt.Sprintf("%d × %s", n, e))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// info returns a field of a section of INFO, or "" if there is none.
func info(s *redistest.Server, section, field string) (string, error) {
	reply, err := s.Do("INFO", section)
	if err != nil {
		return "", err
	}
	text, _ := reply.(string)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// plans returns a plan for each calling process: those of a region make the calls of its streams, half each, and decide
// in the given ways.
func (p *planet) plans(seed uint64, streams func(region int) []stream, ways ...decider) (plans []plan) {
	for i := range p.regions {
		for n := range perRegion {
			plan := plan{Seed: seed<<8 + uint64(len(plans)), Patience: patience, Streams: streams(i)}
			for _, d := range ways {
				if d.Kind == served {
					d.URL = p.services[len(plans)].URL
				}
				d.Client = []string{goRedis, rueidisName}[n%2]
				plan.Deciders = append(plan.Deciders, p.in(i, d))
			}
			for j := range plan.Streams {
				plan.Streams[j].Rate /= perRegion
			}
			plans = append(plans, plan)
		}
	}
	return plans
}

// patience is how long a caller waits for a decision.
const patience = 3 * time.Second
