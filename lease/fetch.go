package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

const (
	shareOfRest = 8           // a lease is at most this part of what is left at home
	mostWaits   = 2           // fetches that a call waits for before the home decides it alone
	usualWithin = time.Second // the longest time to fetch a lease, and the least time to give it back
	mostLeases  = 1 << 14     // leases and fetches of this process; beyond that the home decides
)

// work is what this process does for its region in the background: it fetches leases and gives them back.
type work struct {
	most int // fetches and leases at once

	mu      sync.Mutex
	fetches map[id]*fetch              // the last fetch of each name; guarded by mu, like all fields below
	leases  map[fetchName]*lease       // fetched leases that have not ended
	doing   map[chan struct{}]struct{} // a channel for each task, closed when the task ends
}

// A fetchName names a fetch, and the lease that it fetches.
type fetchName struct {
	name  id
	began int64 // by the holder's clock
}

// A fetch is a lease request that this process has in flight.
type fetch struct {
	done  chan struct{}
	alone bool // set before done is closed: there is no lease, and the home decides each call alone
}

// send starts a fetch in the background. If this process has as many fetches and leases as it may have, send gives the fetch up: another
// process of the region can then fetch, and the home decides this call.
func (s *Store) send(ctx context.Context, name id, req driver.Request, held *window.Held) *fetch {
	out, w := &fetch{done: make(chan struct{})}, &s.work
	w.mu.Lock()
	full := len(w.doing)+len(w.leases) >= w.most
	if !full {
		w.fetches[name] = out
		w.doing[out.done] = struct{}{}
	}
	w.mu.Unlock()
	if full {
		_, _ = s.holder.bring(ctx, name, window.Fetch{Longest: s.longest.Microseconds(), Began: held.At, Rest: held.Rest})
		out.alone = true
		close(out.done)
		return out
	}
	go s.run(context.WithoutCancel(ctx), name, req, *held, out)
	return out
}

func (s *Store) run(ctx context.Context, name id, req driver.Request, held window.Held, out *fetch) {
	defer s.work.end(out.done, func() {
		if s.work.fetches[name] == out {
			delete(s.work.fetches, name)
		}
	})
	ctx, cancel := context.WithTimeout(ctx, s.home.within)
	defer cancel()
	began := time.Now()
	e := window.Fetch{Longest: s.longest.Microseconds(), Began: held.At, Rest: -1}
	var fetched *lease
	answer, asked, err := s.fetch(ctx, req, &held)
	switch {
	case errors.Is(err, errSilent):
		e.Failed = s.home.pause().Microseconds()
	case errors.Is(err, driver.ErrRejected) || errors.Is(err, errPanic) || errors.Is(err, errWrong):
		s.home.answered()
		out.alone = true
	case err != nil:
		e.Failed = s.home.failed(err, time.Since(began)).Microseconds()
	default:
		s.home.answered()
		e.Rest, e.Reply = answer.Remaining(), encode(&answer)
		if answer.Allowed() {
			e.Units, e.Delay = asked, answer.Delay
			whole := req
			whole.Cost, whole.MaySettle = asked, true
			fetched = &lease{
				fetchName: fetchName{name, held.At}, fetched: began,
				grant: driver.Settlement{Request: whole, At: answer.At, Delay: answer.Delay, Source: answer.Source},
			}
		} else {
			e.Refused, e.RefusedCost = s.standsFor(&answer, req.Policy), min(asked, answer.Remaining()+1)
		}
	}
	s.bring(ctx, name, req, &held, e, fetched)
}

// bring reports the outcome of a fetch to the holder. A refusal of an expensive call is reported apart, to let cheap calls still fetch.
func (s *Store) bring(ctx context.Context, name id, req driver.Request, held *window.Held, e window.Fetch, fetched *lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.returnWithin())
	defer cancel()
	if e.Refused > 0 && !held.Spent && req.Cost > min(held.Fetch, s.floor(req.Policy)) {
		_, _ = s.holder.bring(ctx, name, window.Fetch{Longest: e.Longest, Began: e.Began, Rest: e.Rest})
		e.Began = 0
	}
	kept, err := s.holder.bring(ctx, name, e)
	switch {
	case e.Units == 0 || err != nil: // after an error the lease may be spent
	case kept:
		s.keep(fetched)
	default:
		_ = s.settle(ctx, fetched.grant, e.Units)
	}
}

var (
	errPanic  = errors.New("lease: a store panicked")
	errSilent = errors.New("lease: the home store is silent")
	errWrong  = errors.New("lease: the home store gave a wrong answer")
)

// fetch requests a lease from the home, and a smaller one if the home refuses. It returns the last answer and the units last requested.
func (s *Store) fetch(ctx context.Context, req driver.Request, held *window.Held) (answer driver.Answer, asked int64, err error) {
	defer caught(&err)
	if !s.home.may() {
		return answer, 0, errSilent
	}
	cost, limit := req.Cost, req.Policy.MostUnits()
	if held.Spent { // a lease has paid for the call
		cost = 1
	}
	least := min(max(cost, min(held.Fetch, s.floor(req.Policy))), limit)
	rest := held.Rest
	if rest < 0 {
		rest = limit
	}
	req.MaySettle = true
	if s.Powers()&driver.CanBook != 0 && req.Policy.Bookable() { // then leases start in the order in which the home decides
		req.Within = s.longest.Microseconds()
	}
	asked = max(least, min(held.Fetch, rest/shareOfRest))
	answer, err = s.askFor(ctx, req, asked)
	switch {
	case err != nil || answer.Allowed():
	case asked > least:
		asked = least
		answer, err = s.askFor(ctx, req, asked)
	case asked > cost && !held.Spent: // a call waits: request what is left now
		asked, req.Within = min(max(cost, answer.Remaining()), asked-1), 0
		answer, err = s.askFor(ctx, req, asked)
	}
	return answer, asked, err
}

// askFor requests units from the home, and measures how long that takes. Calls that the home decides are not measured: they may queue.
func (s *Store) askFor(ctx context.Context, req driver.Request, units int64) (driver.Answer, error) {
	req.Cost = units
	sent := time.Now()
	answer, err := s.ask(ctx, req)
	if err == nil {
		s.home.measure(time.Since(sent))
		if wrong := answer.Check(req.Policy); wrong != nil {
			err = fmt.Errorf("%w: %w", errWrong, wrong)
		}
	}
	return answer, err
}

// floor returns the units of the smallest lease: what a caller that never stops gets from the tightest limit in an eighth
// of the longest lease, or in the time of two fetches if that is longer.
func (s *Store) floor(policy *driver.Policy) int64 {
	span := float64(max(s.longest.Microseconds()/8, 2*s.way()))
	flow := math.Inf(1)
	for i := range policy.Limits {
		l := &policy.Limits[i]
		flow = min(flow, float64(l.Units)/float64(l.Window+s.longest.Microseconds()))
	}
	return int64(math.Ceil(flow * span))
}

// standsFor returns how long the region keeps a refusal by the home: units may come back, or be booked, before its retry time.
func (s *Store) standsFor(answer *driver.Answer, policy *driver.Policy) int64 {
	longest, retry := s.longest.Microseconds(), answer.Retry()
	if s.Powers()&driver.CanBook != 0 && policy.Bookable() {
		retry -= longest
	}
	return min(max(retry, longest/16), 2*longest)
}

type patience struct {
	since   time.Time // when it began to wait
	fetches int       // of this process, for which it waited
	alone   bool
	places  chan<- struct{} // takes a value for a place among the calls that the home decides; nil until patience is over
	placed  bool            // it has such a place
}

// over reports whether the call has waited so long that the home may decide it, as one of a few.
func (p *patience) over(way int64, most time.Duration) bool {
	if way > 0 { // otherwise no fetch has been measured
		most = max(time.Duration(4*way)*time.Microsecond, 100*time.Millisecond)
	}
	return p.fetches >= mostWaits || !p.since.IsZero() && time.Since(p.since) > most
}

// wait waits for this process's fetch or, without one, until it is time to ask the holder again. A free place also ends the wait.
func (w *work) wait(ctx context.Context, name id, out *fetch, held *window.Held, p *patience) error {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if out == nil {
		out = w.fetch(name)
	}
	var done <-chan struct{}
	var again <-chan time.Time
	if out != nil {
		done = out.done
	} else {
		again = time.After(max(time.Duration(held.Wait)*time.Microsecond, time.Since(p.since)/4))
	}
	select {
	case <-done:
		p.fetches++
		p.alone = out.alone
	case <-again:
	case p.places <- struct{}{}:
		p.placed = true
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (w *work) fetch(name id) *fetch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fetches[name]
}

// end records that a background task has ended. It calls and under mu.
func (w *work) end(done chan struct{}, and func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	and()
	delete(w.doing, done)
	close(done)
}

// ended waits until the background tasks of now have ended, or the context has. It returns how many tasks have not.
func (w *work) ended(ctx context.Context) (left int) {
	w.mu.Lock()
	all := slices.Collect(maps.Keys(w.doing))
	w.mu.Unlock()
	for _, done := range all {
		select {
		case <-done:
		case <-ctx.Done():
			left++
		}
	}
	return left
}
