package regionbench

import (
	"errors"
	"fmt"
	"net"
	"time"

	"example.com/sash/internal/redistest"
)

// A fault is what happens to a planet during a run. At returns the instant after a part of the run has passed.
type fault struct {
	name   string
	events func(p *planet, at func(part float64) time.Duration) ([]event, error)
}

var faults = []fault{
	{"none", func(*planet, func(float64) time.Duration) ([]event, error) { return nil, nil }},
	{"a region is cut off", func(p *planet, at func(float64) time.Duration) ([]event, error) {
		way := p.regions[2].way
		return []event{
			{at(0.1), func() error { way.cut(); return nil }},
			{at(0.4), func() error { way.heal(); return nil }},
		}, nil
	}},
	{"a region's Redis restarts empty", func(p *planet, at func(float64) time.Duration) ([]event, error) {
		return []event{{at(0.55), func() error { p.regions[1].redis.Restart(); return nil }}}, nil
	}},
	{"the home fails over, and keeps its state", func(p *planet, at func(float64) time.Duration) ([]event, error) {
		if err := p.replicate(); err != nil {
			return nil, err
		}
		return []event{{at(0.75), p.failover}}, nil
	}},
}

// together is all faults in one run.
func together(p *planet, at func(float64) time.Duration) (all []event, err error) {
	for _, f := range faults {
		events, e := f.events(p, at)
		all, err = append(all, events...), errors.Join(err, e)
	}
	return all, err
}

// replicate starts a replica of the home.
func (p *planet) replicate() (err error) {
	host, port, err := net.SplitHostPort(p.home.Addr())
	if err != nil {
		return err
	}
	if p.replica, err = redistest.Run("--replicaof", host, port); err != nil {
		return err
	}
	return p.replicated()
}

// replicated waits until the replica has everything that the home has.
func (p *planet) replicated() error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		home, err := info(p.home, "replication", "master_repl_offset")
		if err != nil {
			return err
		}
		replica, err := info(p.replica, "replication", "master_repl_offset")
		if err != nil {
			return err
		}
		link, err := info(p.replica, "replication", "master_link_status")
		if err != nil {
			return err
		}
		if link == "up" && home == replica {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("regionbench: the replica is at %s of %s, its link is %s", replica, home, link)
		}
	}
}

// failover stops all traffic to the home, waits until its replica has everything, and leads all ways there.
func (p *planet) failover() error {
	for _, r := range p.regions {
		r.way.cut()
	}
	if _, err := p.home.Do("CLIENT", "PAUSE", "60000", "WRITE"); err != nil {
		return err
	}
	if err := p.replicated(); err != nil {
		return err
	}
	if _, err := p.replica.Do("REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	p.home.Stop()
	p.home, p.replica = p.replica, nil
	for _, r := range p.regions {
		r.way.redirect(p.home.Addr())
		r.way.heal()
	}
	return nil
}
