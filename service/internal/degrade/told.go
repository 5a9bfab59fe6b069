package degrade

import (
	"log/slog"
	"sync"
	"time"

	"example.com/sash/failover"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/throttle"
)

// told logs what becomes of Redis: when it goes and comes back, and, every now and then, what will not mend by
// itself.
type told struct {
	log           *slog.Logger
	misconfigured throttle.Log

	mu    sync.Mutex
	since time.Time // guarded by mu: when it went down; zero while it is up
	back  time.Time // guarded by mu: when it last came back; zero is never
	why   string    // guarded by mu: the last failure, in a word
}

func newTold(log *slog.Logger) *told {
	return &told{log: log, misconfigured: throttle.Log{To: log, Every: 10 * time.Second}}
}

// change is told of the breaker. Every failed probe is a change too, so only the first counts.
func (t *told) change(now failover.State, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case now == failover.Down && t.since.IsZero():
		t.since = time.Now()
		t.log.Warn("Redis is not asked for now: calls are answered by policy (on_unavailable)", "state", now.String(), "cause", cause)
	case now == failover.Up && !t.since.IsZero():
		t.log.Info("Redis is back", "state", now.String(), "after", time.Since(t.since).Round(time.Millisecond))
		t.since, t.back = time.Time{}, time.Now()
	default:
		t.log.Debug("Redis", "state", now.String(), "cause", cause)
	}
}

func (t *told) failure(err error, kind failover.Kind) {
	t.mu.Lock()
	t.why = decide.Cause(err)
	t.mu.Unlock()
	if kind != failover.Misconfigured && !redisstore.Misconfigured(err) {
		t.log.Debug("Redis failed", "error", err)
		return
	}
	t.misconfigured.Log(slog.LevelError, "Redis refuses to work for this service, which does not mend by itself: see sash doctor", "error", err)
}

// cause is the last failure.
func (t *told) cause() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}
