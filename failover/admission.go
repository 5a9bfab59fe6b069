package failover

import (
	"context"
	"sync"
	"time"

	"example.com/sash"
)

const (
	firstLimit = 16               // calls at the store before anything is known of it
	baseWindow = 10 * time.Second // the fastest answer is that of one such window or two

	longestWait = time.Second // for a turn, while the store answers, unless the budget can last longer
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
	limit   int               // guarded by mu: calls at the store, from 1 to most
	at      int               // guarded by mu: those there now, without those whose budget is over
	fastest [2]time.Duration  // guarded by mu: answer of this window, and of the one before
	window  time.Time         // guarded by mu: when this window began
	shrunk  time.Time         // guarded by mu: when the limit last shrank
	heard   time.Time         // guarded by mu: when a call was last answered
	idle    bool              // guarded by mu: no call was there for a while
	asked   time.Time         // guarded by mu: when one went there after that
	queues  map[string]*queue // guarded by mu: calls that wait, by client
	turns   []*queue          // guarded by mu: those queues, the next one first
	timer   *time.Timer       // guarded by mu: of the next step; nil while no call waits
	due     time.Time         // guarded by mu: of the next step
	lag     time.Duration     // guarded by mu: by how much steps came late in all
}

// A queue is the calls of one client that wait, in order.
type queue struct {
	client string
	calls  []*waiter
}

type waiter struct {
	ended    chan error // gets nil with a place, or why there is none
	gone     bool       // guarded by mu: its caller has left
	others   bool       // calls of other parts had all places
	began    time.Time
	patience time.Duration // the longest wait while the store answers nothing
	last     time.Time     // the end of the longest wait
	lag      time.Duration // of the admission when it began
}

func (a *admission) init(of *breaker, g *guard) {
	a.g, a.of, a.idle = g, of, true
	a.limit, a.queues = min(firstLimit, g.most), make(map[string]*queue)
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

// take takes a place, if there is one. The caller holds mu.
func (a *admission) take() bool {
	if a.at >= a.limit {
		return false
	}
	if a.g.placed.Add(1) > int64(a.g.most) {
		a.g.placed.Add(-1)
		return false
	}
	if a.at++; a.idle {
		a.idle, a.asked = false, time.Now()
	}
	return true
}

// free gives a place back. The caller holds mu.
func (a *admission) free() {
	a.at--
	a.g.placed.Add(-1)
}

// enter takes a place, and waits for its turn if there is none. waited is how long it did, and silent that the store had
// calls and answered none meanwhile. If err is nil the call has to leave.
func (a *admission) enter(ctx context.Context, q *question) (waited time.Duration, silent bool, err error) {
	a.mu.Lock()
	if len(a.turns) == 0 && a.take() {
		a.mu.Unlock()
		return 0, false, nil
	}
	if q.yields || a.of.now() != Up {
		a.mu.Unlock()
		return 0, false, &sash.StoreError{Err: ErrBusy}
	}
	w := a.join(ctx, q.patience)
	a.mu.Unlock()
	select {
	case err = <-w.ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && !w.gone { // the caller has left, perhaps with a place
		w.gone = true
		if len(w.ended) > 0 && <-w.ended == nil {
			a.free()
			a.admit()
		}
	}
	return time.Since(w.began), !w.others && a.heard.Before(w.began), err
}

// join adds a call to the queue of its client. The caller holds mu.
func (a *admission) join(ctx context.Context, patience time.Duration) *waiter {
	client := Client(ctx)
	q := a.queues[client]
	if q == nil {
		q = &queue{client: client}
		a.queues[client] = q
		a.turns = append(a.turns, q)
	}
	now := time.Now()
	w := &waiter{
		ended: make(chan error, 1), began: now, patience: min(patience, silentBudgets*a.g.budget),
		last: now.Add(max(longestWait, longest(a.g.budget), patience)), others: a.at == 0, lag: a.lag,
	}
	q.calls = append(q.calls, w)
	if a.timer == nil {
		a.due = now.Add(a.gap())
		a.timer = time.AfterFunc(a.gap(), a.step)
	}
	return w
}

func (a *admission) gap() time.Duration { return a.g.budget / stepsOfBudget }

// leave gives back the place of a call that began at an instant, when it has an answer, from the store or a cache, or its budget is over.
func (a *admission) leave(began time.Time, answered, fromStore bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.follow(began, now, answered, fromStore)
	a.free()
	a.admit()
}

func (a *admission) answered(after time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard.After(after)
}

// follow changes the limit by a call that ends. The caller holds mu.
func (a *admission) follow(began, now time.Time, answered, fromStore bool) {
	took := now.Sub(began)
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
		if a.limit == 1 && began.After(a.shrunk) { // alone there, it shows a way that has become longer
			alone := min(took, slowest(a.g.budget))
			a.fastest = [2]time.Duration{alone, alone}
		}
	}
	base := min(a.fastest[0], a.fastest[1])
	room := a.g.budget - base
	slow := min(room/2, max(room/4, 2*base)) // a group commit takes up to three round trips
	switch queued := took - base; {
	case queued > slow:
		if began.After(a.shrunk) { // of calls that were there together one counts
			a.shrunk, a.limit = now, max(1, a.limit*3/4)
		}
	case answered && fromStore && queued <= slow/4 && a.at >= a.limit:
		a.limit = min(a.g.most, a.limit+1)
	}
}

// admit gives free places to waiting calls, one for each client in turn. The caller holds mu.
func (a *admission) admit() {
	for len(a.turns) > 0 && a.take() {
		q := a.turns[0]
		a.turns = a.turns[1:]
		w := q.calls[0]
		q.calls[0] = nil
		if q.calls = q.calls[1:]; len(q.calls) > 0 {
			a.turns = append(a.turns, q)
		} else {
			delete(a.queues, q.client)
		}
		if w.gone {
			a.free()
		} else {
			w.ended <- nil
		}
	}
	a.idle = a.at == 0
}

// step ends waits that took too long, and gives out places that other parts left.
func (a *admission) step() {
	a.g.woke()
	_ = yield()                                  // to those that read replies
	here := a.g.waitsBelow(a.g.budget - a.gap()) // the store keeps no call waiting
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if late := now.Sub(a.due); late > onTime {
		a.lag += late
	}
	a.admit()
	down, next := a.of.now() != Up, now.Add(a.gap())
	turns := a.turns[:0]
	for _, q := range a.turns {
		kept := q.calls[:0]
		for _, w := range q.calls {
			over, err := a.over(w, now, here)
			switch {
			case w.gone:
			case down:
				w.ended <- &sash.StoreError{Err: ErrBusy}
			case err != nil:
				w.ended <- err
			default:
				kept = append(kept, w)
				if over.Before(next) {
					next = over
				}
			}
		}
		clear(q.calls[len(kept):])
		if q.calls = kept; len(kept) > 0 {
			turns = append(turns, q)
		} else {
			delete(a.queues, q.client)
		}
	}
	clear(a.turns[len(turns):])
	if a.turns = turns; len(turns) == 0 {
		a.timer = nil
		return
	}
	a.due = now.Add(max(time.Millisecond, next.Sub(now)))
	a.timer.Reset(a.due.Sub(now))
}

// over returns when a wait is over, and why if it is. A call has waited for the store if that answers nothing for as long as
// the call may be there, less the time in which this process did not run: then the failure mode answers. Otherwise it has
// waited for other calls, and it may do so for longer. The caller holds mu.
func (a *admission) over(w *waiter, now time.Time, here bool) (end time.Time, err error) {
	var why error = &sash.StoreError{Err: ErrBusy}
	since := w.began
	answered := a.heard
	if a.at == 0 { // other parts have all places
		answered = a.g.start.Add(time.Duration(a.g.heard.Load()))
	}
	for _, at := range [...]time.Time{answered, a.asked} {
		if at.After(since) {
			since = at
		}
	}
	end = since.Add(w.patience + a.lag - w.lag)
	if here || end.After(w.last) {
		end = w.last
		if here || since != w.began {
			why = ErrOverload
		}
	}
	if now.Before(end) {
		return end, nil
	}
	return end, why
}
