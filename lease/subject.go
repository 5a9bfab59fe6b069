package lease

import (
	"context"
	"sync"
	"time"

	"example.com/sash/driver"
)

// A shard holds the subjects of some keys. What is below mu is guarded by it, and so are the subjects.
type shard struct {
	store    *Store
	mu       sync.Mutex
	subjects map[string]*subject
}

// A subject is what is known of a key: its lease, and how much is asked of it.
type subject struct {
	policy *driver.Policy

	// The lease. It can be spent while until is not reached.
	left   int64
	until  time.Duration
	grant  driver.Settlement // of the block: Units is what was spent of it
	answer driver.Answer     // to the block
	timer  *time.Timer
	filled chan struct{} // not nil while a block is asked for; closed when it is there
	void   bool          // the subject was reset while a block was asked for
	lost   int           // blocks in a row whose answer was lost: they stay charged, so the next is smaller

	// The demand, in units, within spans of the longest lease.
	since     time.Duration
	now, past int64 // in this span, and in the one before
	rest      int64 // what the store had left when it last said so
}

// A step is how a call goes on.
type step struct {
	spent bool            // out of the lease
	wait  <-chan struct{} // until a block is there
	block int64           // with wait: ask the store for so many units, meanwhile
}

// spend takes a call's units out of the lease, if that has enough, and answers it in res. Otherwise it says how
// to go on. A call counts as demand before it has waited for a block.
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

// count adds to the demand of the span that now is in.
func (sub *subject) count(now time.Duration, units int64, span time.Duration) {
	switch passed := now - sub.since; {
	case passed >= 2*span:
		sub.since, sub.past, sub.now = now, 0, 0
	case passed >= span:
		sub.since, sub.past, sub.now = now, sub.now, 0
	}
	sub.now += units
}

// subject returns the request's subject, or nil when there is no place for another one, or when its policy
// is not the one that the subject is known under.
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

// idle reports whether nothing is lost when the subject goes.
func (sub *subject) idle() bool { return sub.timer == nil && sub.filled == nil }

// makePlace drops a subject that has no lease, of the first few that come up.
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

// saw notes what the store said of a subject.
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

// filled takes in the answer to a block that was asked for at sent, and lets those go on that wait for it.
func (sh *shard) filled(req driver.Request, res driver.Answer, err error, block int64, sent time.Duration) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sub := sh.subjects[req.Key]
	close(sub.filled)
	sub.filled = nil
	if err != nil {
		sub.rest = 0 // until the store says otherwise
		sub.lost++
		return
	}
	sub.rest = res.Remaining()
	if !res.Allowed() {
		sub.rest = 0
		return
	}
	if rest, ok := sub.end(); ok { // of the lease before
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

// end takes what a lease has left, and returns the correction of its charge.
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

// expire ends a lease when its time is over. A newer lease of the subject has a timer of its own.
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

// giveBack gives back in the background. If that fails the units stay charged until they leave the window.
func (sh *shard) giveBack(rest driver.Settlement) {
	ctx, cancel := context.WithTimeout(context.Background(), returnWithin)
	defer cancel()
	_ = sh.store.Settle(ctx, rest)
}

// endAll ends every lease and returns the corrections.
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

// forget ends a key's lease for good: the subject was reset.
func (sh *shard) forget(key string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sub := sh.subjects[key]; sub != nil {
		sub.end()
		sub.rest, sub.void = 0, true
	}
}
