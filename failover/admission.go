package failover

import (
	"context"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

const (
	firstLimit = 16               // calls at the store before it has answered any
	baseWindow = 10 * time.Second // the fastest answer is measured over one or two such windows
)

// An admission bounds how many calls are at a part of the store, and gives clients the places in turn.
//
//	caller --> waits in this process, in turn with other clients --> at the store --> answered
//	             overload beyond the longest wait                     the budget
//
// The budget and the breaker measure only the time at the store, because only that time shows how the store is doing. The limit grows
// while all places are taken and answers take little longer than the fastest one. It shrinks by a quarter when an answer takes much longer
// than that, measured against the budget. So calls queue in this process, where clients have turns, and not at the store.
type admission struct {
	g  *guard // of all parts
	of *breaker

	mu      sync.Mutex
	limit   int                // guarded by mu: calls at the store, from 1 to most
	there   map[*call]struct{} // guarded by mu: calls at the store whose time is not over
	fastest [2]time.Duration   // guarded by mu: answer of this window, and of the one before
	window  time.Time          // guarded by mu: when this window began
	shrunk  time.Time          // guarded by mu: when the limit last shrank
	heard   time.Time          // guarded by mu: when a call was last answered
	asked   time.Time          // guarded by mu: since when calls are at the store; zero if none are
	queues  map[string]*queue  // guarded by mu: calls that wait, by client
	turns   []*queue           // guarded by mu: the queues, the next one first
	clock                      // guarded by mu
}

// A place is where a call is.
type place struct {
	began    time.Time
	went     time.Time     // to the store; zero while it waits for its turn
	lag      time.Duration // of the admission's clock when the call came
	spent    time.Duration // of its time before it went: the store was silent
	extended bool          // a late step has extended its time once
	turn     chan error    // gets nil when it is the call's turn, or why it gets none
	gone     bool          // its caller left before its turn
	others   bool          // calls of other parts held all places when it came

	over bool                         // the store has returned
	then []func(*driver.Batch, error) // called when the store returns
}

// A queue is the calls of one client that wait, in order.
type queue struct {
	client string
	calls  []*call
}

func (a *admission) init(of *breaker, g *guard) {
	a.g, a.of = g, of
	a.limit, a.queues, a.there = min(firstLimit, g.most), make(map[string]*queue), make(map[*call]struct{})
	a.fastest = [2]time.Duration{slowest(g.budget), slowest(g.budget)}
}

// slowest returns the slowest answer that leaves a part of the budget.
func slowest(budget time.Duration) time.Duration { return budget * 7 / 8 }

type clientKey struct{}

// WithClient returns a context for calls of a client, such as a tenant. While calls wait in this process, clients take turns,
// so that a client with many calls does not delay the others. All calls without a client count as one client.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// Client returns the client of WithClient, or "".
func Client(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}

// take gives a call a place at the store, if there is one. The caller holds mu.
func (a *admission) take(c *call, now time.Time) bool {
	if len(a.there) >= a.limit {
		return false
	}
	if a.g.inFlight.Add(1) > int64(a.g.most) {
		a.g.inFlight.Add(-1)
		return false
	}
	if a.asked.IsZero() {
		a.asked = now
	}
	a.there[c], c.went = struct{}{}, now
	a.start(now)
	return true
}

// enter takes a place for a call, and waits for its turn if none is free. silent reports that the store had calls meanwhile and answered
// none: then the wait counts as a part of the call's time.
func (a *admission) enter(ctx context.Context, c *call) (silent bool, err error) {
	a.mu.Lock()
	c.began = time.Now()
	c.lag = a.lag
	if len(a.turns) == 0 && a.take(c, c.began) {
		a.mu.Unlock()
		return false, nil
	}
	if c.yields || a.of.now() != Up {
		a.mu.Unlock()
		return false, &sash.StoreError{Err: ErrBusy}
	}
	a.join(Client(ctx), c)
	a.mu.Unlock()
	select {
	case err = <-c.turn:
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	silent = !c.others && a.heard.Before(c.began)
	waited := time.Since(c.began)
	switch {
	case err != nil:
		if c.gone = true; len(c.turn) > 0 && <-c.turn == nil {
			a.free(c)
		}
	case silent:
		c.spent = min(waited, c.patience)
	default:
		c.patience = min(c.patience, max(a.g.budget, c.patience-waited))
	}
	return silent, err
}

// join adds a call to the queue of its client. The caller holds mu.
func (a *admission) join(client string, c *call) {
	q := a.queues[client]
	if q == nil {
		q = &queue{client: client}
		a.queues[client] = q
		a.turns = append(a.turns, q)
	}
	c.turn, c.others = make(chan error, 1), len(a.there) == 0
	q.calls = append(q.calls, c)
	a.start(c.began)
}

// free frees the place of a call that has ended or is not sent to the store. The caller holds mu.
func (a *admission) free(c *call) {
	a.g.inFlight.Add(-1)
	delete(a.there, c)
	a.admit()
}

// leave ends a call. It reports whether the call ended in time, and returns the functions to call with its result.
func (a *admission) leave(c *call, answered, fromStore bool) (inTime bool, then []func(*driver.Batch, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, inTime = a.there[c]; inTime {
		a.follow(c, time.Now(), answered, fromStore)
	}
	a.free(c)
	c.over = true
	return inTime, c.then
}

// follow adjusts the limit to the time that a call took. The caller holds mu.
func (a *admission) follow(c *call, now time.Time, answered, fromStore bool) {
	took := now.Sub(c.went)
	switch {
	case answered:
		a.heard = now
		a.g.heard.Store(int64(now.Sub(a.g.start)))
	case took < a.g.budget: // an error shows no queue
		return
	}
	if answered && fromStore {
		if now.Sub(a.window) > baseWindow {
			a.window, a.fastest = now, [2]time.Duration{slowest(a.g.budget), a.fastest[0]}
		}
		a.fastest[0] = min(a.fastest[0], took)
	}
	base := min(a.fastest[0], a.fastest[1])
	room := a.g.budget - base
	slow := min(room/2, max(room/4, 2*base)) // a group commit takes up to three round trips
	switch queued := took - base; {
	case queued > slow:
		if c.went.After(a.shrunk) { // of calls that were at the store together, one counts
			a.shrunk, a.limit = now, max(1, a.limit*3/4)
		}
	case answered && fromStore && queued <= slow/4 && len(a.there) >= a.limit:
		a.limit = min(a.g.most, a.limit+1)
	}
}

// admit gives free places to waiting calls, one for each client in turn. The caller holds mu.
func (a *admission) admit() {
	for now := time.Now(); len(a.turns) > 0; {
		q := a.turns[0]
		c := q.calls[0]
		if !c.gone && !a.take(c, now) {
			break
		}
		a.turns = a.turns[1:]
		q.calls[0] = nil
		if q.calls = q.calls[1:]; len(q.calls) > 0 {
			a.turns = append(a.turns, q)
		} else {
			delete(a.queues, q.client)
		}
		if !c.gone {
			c.turn <- nil
		}
	}
	if len(a.there) == 0 {
		a.asked = time.Time{}
	}
}
