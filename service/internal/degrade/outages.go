package degrade

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/throttle"
)

// Outages logs when Redis goes down and comes back, and repeatedly, at intervals, a misconfiguration or a
// rejected key, which need an operator.
type outages struct {
	log           *slog.Logger
	failed        func(error)
	misconfigured throttle.Log
	rejected      throttle.Log

	uncounted func() int64 // so far

	mu     sync.Mutex
	since  time.Time // guarded by mu: when it went down; zero while it is up
	back   time.Time // guarded by mu: when it last came back; zero is never
	why    error     // guarded by mu: the last failure; nil is none
	whyAt  time.Time // guarded by mu
	before int64     // guarded by mu: uncounted before the failures that took it down
	during int64     // guarded by mu: uncounted in the last outage
}

func newOutages(opts *Options) *outages {
	const every = 10 * time.Second
	log := opts.Log
	return &outages{
		log: log, failed: opts.Failed, uncounted: opts.Uncounted,
		misconfigured: throttle.Log{To: log, Every: every}, rejected: throttle.Log{To: log, Every: every},
	}
}

// apart is the time without a failure after which the next failure begins an outage, if there is one. It is longer than
// the failures that take Redis down are apart.
const apart = 2 * time.Second

// fails notes a failure. The caller holds mu.
func (o *outages) fails() {
	now := time.Now()
	if o.since.IsZero() && now.Sub(o.whyAt) > apart {
		o.before = o.uncounted()
	}
	o.whyAt = now
}

// change logs a change of the breaker. Every failed probe is a change too, so only the first counts.
func (o *outages) change(now failover.State, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case now == failover.Down && o.since.IsZero():
		o.fails()
		o.since = time.Now()
		o.log.Warn("Redis is down: calls are answered by the failure mode of their rule (on_unavailable)", "state", now.String(), "cause", cause)
	case now == failover.Up && !o.since.IsZero():
		o.log.Info("Redis is back", "state", now.String(), "after", time.Since(o.since).Round(time.Millisecond))
		o.since, o.back, o.during = time.Time{}, time.Now(), o.uncounted()-o.before
	default:
		o.log.Debug("Redis", "state", now.String(), "cause", cause)
	}
}

// failure counts and logs an error of Redis.
func (o *outages) failure(err error, kind failover.Kind) {
	o.failed(err)
	if errors.Is(err, driver.ErrRejected) {
		o.rejected.Log(slog.LevelError, "Redis works and rejects calls on one key; other keys are decided: see sash inspect", "error", err)
		return
	}
	o.mu.Lock()
	o.fails()
	o.why = err
	o.mu.Unlock()
	if kind != failover.Misconfigured && !redisstore.Misconfigured(err) {
		o.log.Debug("Redis failed", "error", err)
		return
	}
	o.misconfigured.Log(slog.LevelError, "Redis rejects this service's calls until an operator corrects its configuration: see sash doctor", "error", err)
}

// cause returns the last failure, in a word.
func (o *outages) cause() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why == nil {
		return ""
	}
	return cause.Of(o.why)
}

// A Report is the state of a service's store, for its operators.
type Report struct {
	Health
	// Address is where the store is, without the password; empty in memory.
	Address string
	// Since is when the store went down, came back, or became full; zero when none of these happened since
	// the start.
	Since time.Time
	// Err is the last failure; nil while the store is up.
	Err error
	// Uncounted is how many requests went ahead that nothing counts: since Since while the store is down, and otherwise in
	// the last outage.
	Uncounted int64
	// Memory is how full the store in memory is: the service's own, or that of mode local.
	Memory *memstore.Stats
	// Home is what is known of the store that all regions share; nil without one.
	Home *HomeStats
	// Stats are those of the store that answers while Redis does not.
	Stats failover.Stats
}

// Report returns the state now. It sends nothing.
func (g *Guard) Report() Report {
	memory := g.local.store.Stats()
	r := Report{Health: g.Health(), Address: g.address, Stats: g.stats(), Memory: &memory}
	if g.home != nil {
		home := g.home.Stats()
		r.Home = &home
	}
	o := g.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		r.Since, r.Uncounted = o.back, o.during
	} else {
		r.Since, r.Err, r.Uncounted = o.since, o.why, o.uncounted()-o.before
	}
	return r
}
