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
	mostWaits   = 2           // for fetches; then the home decides the call alone
	usualWithin = time.Second // the longest time to fetch a lease, and the least that it has to go back
	mostLeases  = 1 << 14     // of this process, and fetches; then the home decides
)

// work is what this process does for its region in the background: fetches, and leases that go back.
type work struct {
	most int // fetches and leases at once

	mu      sync.Mutex
	fetches map[id]*fetch              // the last one of a name; guarded by mu, as all below
	leases  map[fetchName]*lease       // that were fetched, and have not ended
	doing   map[chan struct{}]struct{} // each is closed at its end
}

// A fetchName names a fetch, and the lease that it fetches.
type fetchName struct {
	name  id
	began int64 // by the holder's clock
}

// A fetch is a lease request that this process has in flight.
type fetch struct {
	done  chan struct{}
	alone bool // set before done is closed: the home does not lease, and decides each call alone
}

// send starts a fetch, in the background. A process with as many fetches and leases as it may have gives it up, so that another one of
// the region goes, and the home decides the call.
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

// bring brings what came of a fetch to the holder. The refusal of a dear call must not keep cheap ones from fetches: this is given up.
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

// fetch asks the home for a lease, and if it refuses for a smaller one. It returns the last answer and how much was asked.
func (s *Store) fetch(ctx context.Context, req driver.Request, held *window.Held) (answer driver.Answer, asked int64, err error) {
	defer caught(&err)
	if !s.home.may() {
		return answer, 0, errSilent
	}
	cost, limit := req.Cost, req.Policy.MostUnits()
	if held.Spent { // the call is paid
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
	case asked > cost && !held.Spent: // a call waits: what is left now
		asked, req.Within = min(max(cost, answer.Remaining()), asked-1), 0
		answer, err = s.askFor(ctx, req, asked)
	}
	return answer, asked, err
}

// askFor asks the home for units, and measures how long the home takes. Calls that the home decides are not measured, for they may queue.
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

// floor returns the units of the smallest lease: what the tightest limit gives to a caller that never stops in a part of
// the longest lease, or in two ways.
func (s *Store) floor(policy *driver.Policy) int64 {
	span := float64(max(s.longest.Microseconds()/8, 2*s.way()))
	flow := math.Inf(1)
	for i := range policy.Limits {
		l := &policy.Limits[i]
		flow = min(flow, float64(l.Units)/float64(l.Window+s.longest.Microseconds()))
	}
	return int64(math.Ceil(flow * span))
}

// standsFor returns how long a refusal by the home stands before somebody asks again: units may come back, or be booked, earlier.
func (s *Store) standsFor(answer *driver.Answer, policy *driver.Policy) int64 {
	longest, retry := s.longest.Microseconds(), answer.Retry()
	if s.Powers()&driver.CanBook != 0 && policy.Bookable() {
		retry -= longest
	}
	return min(max(retry, longest/16), 2*longest)
}

type patience struct {
	since   time.Time // when it began to wait
	fetches int       // of this process
	alone   bool
	places  chan<- struct{} // once it is over: a place among the calls that the home decides
	placed  bool            // it has one
}

// over reports whether the home may decide the call alone, as one of a few.
func (p *patience) over(way int64, most time.Duration) bool {
	if way > 0 { // otherwise nobody knows how long a fetch takes
		most = max(time.Duration(4*way)*time.Microsecond, 100*time.Millisecond)
	}
	return p.fetches >= mostWaits || !p.since.IsZero() && time.Since(p.since) > most
}

// wait waits for a fetch of this process, if there is one, and otherwise until it is time to ask again, or for a place.
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

// end ends what is done in the background. It calls and under mu.
func (w *work) end(done chan struct{}, and func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	and()
	delete(w.doing, done)
	close(done)
}

// ended waits until what is done now has ended, or the context, and returns how much has not.
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
