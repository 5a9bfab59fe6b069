package degrade

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/service/internal/throttle"
)

// A jump is how far a server's clock must go ahead of or behind this process's between two answers to be logged. No
// limit notices less, and the clocks of a Cluster's nodes differ by less.
const jump = time.Second

// A clocked store logs jumps of the clocks of Redis. It compares the time of each answer with the steady clock of this
// process, by the part of the store that answered. It does not watch calls with an ID, which can get an old answer.
type clocked struct {
	driver.Passthrough
	part  func(key string, policy *driver.Policy) int // below parts
	log   throttle.Log
	began time.Time

	mu      sync.Mutex
	offsets [parts]offset // guarded by mu
}

// An offset is between which bounds a server's clock was ahead of the steady one: an answer's time lies between when
// the call was sent and when its answer came.
type offset struct {
	least, most time.Duration
	known       bool
}

func newClocked(next driver.Store, part func(string, *driver.Policy) int, log *slog.Logger) *clocked {
	return &clocked{Passthrough: driver.Passthrough{Next: next}, part: part, log: throttle.Log{To: log, Every: 10 * time.Second}, began: time.Now()}
}

// Decide implements driver.Store.
func (c *clocked) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	sent := time.Since(c.began)
	answer, err := c.Passthrough.Decide(ctx, req)
	if err == nil {
		c.note(req, clock(&answer), sent)
	}
	return answer, err
}

// Gathers implements driver.Gatherer.
func (c *clocked) Gathers(req *driver.Request) (place int, ok bool) {
	next, ok := c.Next.(driver.Gatherer)
	if !ok {
		return 0, false
	}
	return next.Gathers(req)
}

// DecideMany implements driver.Gatherer. The store behind it is one.
func (c *clocked) DecideMany(ctx context.Context, reqs []driver.Request) ([]driver.Answer, []error) {
	sent := time.Since(c.began)
	answers, errs := c.Next.(driver.Gatherer).DecideMany(ctx, reqs)
	for i := range errs { // one place has one clock
		if errs[i] == nil {
			c.note(reqs[i], clock(&answers[i]), sent)
			break
		}
	}
	return answers, errs
}

// DecideEach implements driver.Batcher.
func (c *clocked) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	sent := time.Since(c.began)
	answers, err := c.Passthrough.DecideEach(ctx, reqs)
	if err == nil && len(answers) > 0 {
		c.note(reqs[0], clock(&answers[0]), sent)
	}
	return answers, err
}

// clock returns the server's time of a decision. A booking is dated later than that.
func clock(answer *driver.Answer) int64 { return answer.At - answer.Delay }

// DecideAll implements driver.MultiStore.
func (c *clocked) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	sent := time.Since(c.began)
	answers, err := c.Passthrough.DecideAll(ctx, reqs)
	if err == nil && len(answers) > 0 {
		c.note(reqs[0], clock(&answers[0]), sent)
	}
	return answers, err
}

// note compares the server's time of an answer with that of the last answer of its part.
func (c *clocked) note(req driver.Request, at int64, sent time.Duration) {
	now := time.Duration(at) * time.Microsecond
	seen := offset{least: now - time.Since(c.began), most: now - sent, known: true}
	c.mu.Lock()
	last := &c.offsets[c.part(req.Key, req.Policy)]
	before := *last
	*last = seen
	c.mu.Unlock()
	switch ahead, behind := seen.least-before.most, before.least-seen.most; {
	case !before.known:
	case ahead > jump:
		c.log.Log(slog.LevelWarn, "the clock of Redis went forward, or this process was suspended: limits may admit up to their units once more",
			"by", ahead.Round(time.Millisecond))
	case behind > jump:
		c.log.Log(slog.LevelWarn, "the clock of Redis went back: limits admit no more than before, and callers may wait longer, for a window at most",
			"by", behind.Round(time.Millisecond))
	}
}
