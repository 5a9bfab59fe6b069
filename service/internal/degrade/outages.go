package degrade

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/throttle"
)

// Outages logs when Redis goes down and comes back, and repeatedly, at intervals, a misconfiguration or a
// rejected key, which need an operator.
type outages struct {
	log           *slog.Logger
	failed        func(error)
	misconfigured throttle.Log
	rejected      throttle.Log

	mu    sync.Mutex
	since time.Time // guarded by mu: when it went down; zero while it is up
	back  time.Time // guarded by mu: when it last came back; zero is never
	why   string    // guarded by mu: the last failure, in a word
}

func newOutages(log *slog.Logger, failed func(error)) *outages {
	const every = 10 * time.Second
	return &outages{log: log, failed: failed, misconfigured: throttle.Log{To: log, Every: every}, rejected: throttle.Log{To: log, Every: every}}
}

// change logs a change of the breaker. Every failed probe is a change too, so only the first counts.
func (o *outages) change(now failover.State, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case now == failover.Down && o.since.IsZero():
		o.since = time.Now()
		o.log.Warn("Redis is down: calls are answered by the failure mode of their rule (on_unavailable)", "state", now.String(), "cause", cause)
	case now == failover.Up && !o.since.IsZero():
		o.log.Info("Redis is back", "state", now.String(), "after", time.Since(o.since).Round(time.Millisecond))
		o.since, o.back = time.Time{}, time.Now()
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
	o.why = decide.Cause(err)
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
	return o.why
}
