package lease

import (
	"context"
	"sync"
	"time"

	"example.com/sash/driver"
)

// A shard holds the subjects of some keys. mu guards the fields below it and the subjects.
type shard struct {
	store    *Store
	mu       sync.Mutex
	subjects map[string]*subject
}

// A subject is the lease and the demand of a key.
type subject struct {
	policy *driver.Policy

	// The lease. Its units can be spent before until.
	left   int64
	until  time.Duration
	grant  driver.Settlement // of the block; Units are the spent ones
	answer driver.Answer     // to the block
	timer  *time.Timer
	filled chan struct{} // not nil while a block is in flight; closed when it has arrived
	void   bool          // the subject was reset while a block was in flight
	lost   int           // blocks in a row whose answer was lost; they stay charged, so the next one is smaller

	// The demand, in units, during intervals of the longest lease.
	since     time.Duration
	now, past int64 // of this interval and the one before
	rest      int64 // the units left by the store's last answer
}

// A step is the next step of a call.
type step struct {
	spent bool            // the lease admitted the call
	wait  <-chan struct{} // wait for a block
	block int64           // with wait: fetch a block of so many units
}

// spend admits a call from the lease, if that has enough units, and sets res. Otherwise it returns the next step. A call
// counts as demand once, before it waits for a block.
func (sh *shard) spend(req driver.Request, waited int, res *driver.Answer) step {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sub := sh.subject(req)
	if sub == nil {
		return step{}
	}
	now := sh.store.now()
	if waited == 0 {
		sub.count(now, req.Cost, sh.store.longest)
	}
	if sub.left >= req.Cost && now < sub.until {
		sub.left -= req.Cost
		sub.grant.Units += req.Cost
		*res = sub.answer.Before(sub.left)
		return step{spent: true}
	}
	if waited == mostWaits {
		return step{}
	}
	if sub.filled != nil {
		return step{wait: sub.filled}
	}
	block := min(max(sub.now, sub.past), sub.rest/shareOfRest) >> min(sub.lost, 62)
	if block < 2*req.Cost {
		return step{}
	}
	sub.filled, sub.void = make(chan struct{}), false
	return step{wait: sub.filled, block: block}
}

// count adds units to the demand of the current interval.
func (sub *subject) count(now time.Duration, units int64, span time.Duration) {
	switch passed := now - sub.since; {
	case passed >= 2*span:
		sub.since, sub.past, sub.now = now, 0, 0
	case passed >= span:
		sub.since, sub.past, sub.now = now, sub.now, 0
	}
	sub.now += units
}

// subject returns the request's subject, or nil if there is no place for another one or the subject has another policy.
func (sh *shard) subject(req driver.Request) *subject {
	sub := sh.subjects[req.Key]
	if sub != nil && sub.policy.Equal(req.Policy) {
		return sub
	}
	if sub != nil && !sub.idle() {
		return nil
	}
	if sub == nil && len(sh.subjects) >= keysPerShard {
		sh.makePlace()
		if len(sh.subjects) >= keysPerShard {
			return nil
		}
	}
	sub = &subject{policy: req.Policy, since: sh.store.now()}
	sh.subjects[req.Key] = sub
	return sub
}

// idle reports whether the subject can be dropped without a loss.
func (sub *subject) idle() bool { return sub.timer == nil && sub.filled == nil }

// makePlace visits a few subjects and drops the first idle one.
func (sh *shard) makePlace() {
	tries := 0
	for key, sub := range sh.subjects {
		if sub.idle() {
			delete(sh.subjects, key)
			return
		}
		if tries++; tries == 16 {
			return
		}
	}
}

// saw records how much the store has left for a subject.
func (sh *shard) saw(req driver.Request, res driver.Answer) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sub := sh.subjects[req.Key]; sub != nil && sub.policy.Equal(req.Policy) {
		sub.rest = res.Remaining()
		if !res.Allowed() {
			sub.rest = 0
		}
		sub.lost = max(0, sub.lost-1)
	}
}

// filled starts the lease of a block that was requested at sent, and wakes the calls that wait for it.
func (sh *shard) filled(req driver.Request, res driver.Answer, err error, block int64, sent time.Duration) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sub := sh.subjects[req.Key]
	close(sub.filled)
	sub.filled = nil
	if err != nil {
		sub.rest = 0 // until the next answer of the store
		sub.lost++
		return
	}
	sub.rest = res.Remaining()
	if !res.Allowed() {
		sub.rest = 0
		return
	}
	if rest, ok := sub.end(); ok { // of the previous lease
		go sh.giveBack(rest)
	}
	req.Cost = block
	sub.left = block
	sub.until = sent + sh.store.longest
	sub.answer = res
	sub.answer.Source = driver.FromLease
	sub.grant = driver.Settlement{Request: req, At: res.At, Source: res.Source}
	sub.timer = time.AfterFunc(sub.until-sh.store.now(), func() { sh.expire(sub) })
	if sub.void {
		if rest, ok := sub.end(); ok {
			go sh.giveBack(rest)
		}
	}
}

// end ends a lease and returns the settlement that gives its rest back.
func (sub *subject) end() (rest driver.Settlement, ok bool) {
	if sub.timer == nil {
		return rest, false
	}
	sub.timer.Stop()
	sub.timer = nil
	rest, ok = sub.grant, sub.left > 0
	sub.left = 0
	return rest, ok
}

// expire ends a lease at its end. A newer lease of the subject has its own timer.
func (sh *shard) expire(sub *subject) {
	sh.mu.Lock()
	if sh.store.now() < sub.until {
		sh.mu.Unlock()
		return
	}
	rest, ok := sub.end()
	sh.mu.Unlock()
	if ok {
		sh.giveBack(rest)
	}
}

// giveBack settles the rest of a lease in the background. If that fails, the units stay charged until they leave the
// window.
func (sh *shard) giveBack(rest driver.Settlement) {
	ctx, cancel := context.WithTimeout(context.Background(), returnWithin)
	defer cancel()
	defer func() { _ = recover() }() // a store that panics must not end the process: no caller is on this goroutine
	_ = sh.store.Settle(ctx, rest)
}

// endAll ends every lease and returns the settlements.
func (sh *shard) endAll() (all []driver.Settlement) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, sub := range sh.subjects {
		if rest, ok := sub.end(); ok {
			all = append(all, rest)
		}
	}
	return all
}

// forget drops a key's lease without giving it back, because the subject was reset.
func (sh *shard) forget(key string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sub := sh.subjects[key]; sub != nil {
		sub.end()
		sub.rest, sub.void = 0, true
	}
}
