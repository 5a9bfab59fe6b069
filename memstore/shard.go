package memstore

import (
	"container/heap"
	"sync"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// A shard owns part of the keys. Everything below mu is guarded by it.
type shard struct {
	mu       sync.Mutex
	clock    clock
	subjects map[uint64]*subject // by hash; those with the same hash are chained
	queue    queue
	store    *Store
	evicted  uint64
	statuses [driver.MaxLimits]driver.Status // of the current decision: here, to avoid an allocation
}

// A subject is a key's charges and its place in the queue.
type subject struct {
	id    id
	next  *subject // with the same hash
	state window.State
	log   window.Log // the state under most algorithms: here, to avoid a pointer
	loose bool       // a charge may still be settled; once true, it stays true until the subject is dropped

	born  int64  // when it was first charged, or the instant to which the clock went back since
	hash  uint64 // of its key
	due   int64  // when the queue visits it
	index int    // in the queue; -1 after it has left

	until int64 // when no charge can be settled any more, and no call be repeated
	ids   *ids  // nil until there is one
}

// begin gives a new subject its state.
func (s *subject) begin(policy *driver.Policy) {
	switch policy.Algorithm {
	case driver.FixedWindow:
		s.state = new(window.Fixed)
	case driver.SlidingCounter:
		s.state = new(window.Counter)
	case driver.GCRA:
		s.state = new(window.GCRA)
	default:
		s.log.Resolution = max(1, policy.Resolution.Microseconds())
		s.state = &s.log
	}
}

// expires returns when the subject can be forgotten: no charge counts any more, and no settlement does anything.
func (s *subject) expires() int64 { return max(s.until, s.state.Expires()) }

// hold keeps the subject for as long as a charge of now may be settled.
func (s *subject) hold(now int64, req *driver.Request) {
	s.born = min(s.born, now)
	if !req.MaySettle {
		return
	}
	set := driver.Settlement{Request: *req, At: now}
	s.loose, s.until = true, max(s.until, set.Expires())
}

// look fills statuses without charging.
func (sh *shard) look(now int64, hash uint64, req driver.Request, statuses []driver.Status) (refusals uint64) {
	if sub := sh.find(hash, req.Key, req.Policy); sub != nil {
		return sub.state.Look(now, req.Cost, req.Policy.Limits, statuses)
	}
	for i, l := range req.Policy.Limits {
		statuses[i] = driver.Status{Remaining: l.Units}
	}
	return 0
}

// charge records a request, and drops expired keys.
func (sh *shard) charge(now int64, hash uint64, req driver.Request) {
	sub := sh.find(hash, req.Key, req.Policy)
	if sub == nil {
		sub = sh.add(now, hash, req)
	}
	sub.hold(now, &req)
	sub.state.Charge(now, req.Cost, req.Policy.Limits)
}

// decide looks, and charges when there is room. It reports whether a refusal is firm.
func (sh *shard) decide(now int64, hash uint64, req driver.Request, statuses []driver.Status) (refusals uint64, firm bool) {
	sub := sh.find(hash, req.Key, req.Policy)
	fresh := sub == nil
	if fresh {
		if req.Cost == 0 {
			return sh.look(now, hash, req, statuses), false
		}
		sub = sh.add(now, hash, req)
	}
	refusals = window.Decide(sub.state, now, req.Cost, req.Policy.Limits, req.Policy.CountRefused, statuses)
	if refusals == 0 && req.Cost > 0 {
		sub.hold(now, &req)
	}
	if fresh {
		sub.due = sub.expires()
		heap.Fix(&sh.queue, sub.index)
	}
	return refusals, refusals != 0 && !sub.loose && !req.Policy.CountRefused
}

// find returns the subject of a key with this hash under a policy, or nil.
func (sh *shard) find(hash uint64, key string, policy *driver.Policy) *subject {
	sub := sh.subjects[hash]
	for sub != nil && (sub.id.key != key || sub.id.algorithm != policy.Algorithm || sub.id.resolution != policy.Resolution) {
		sub = sub.next
	}
	if sub != nil {
		sub.log.CountRefused = policy.CountRefused
	}
	return sub
}

// add creates a subject, and makes room for it.
func (sh *shard) add(now int64, hash uint64, req driver.Request) *subject {
	sh.sweep(now, 4)
	if sh.store.keys.Load() >= sh.store.most && len(sh.queue) > 0 {
		sh.evict(now)
	}
	sub := &subject{id: identify(req.Key, req.Policy), hash: hash, born: now, due: now + driver.Longest(req.Policy.Limits)}
	sub.begin(req.Policy)
	sub.next = sh.subjects[hash]
	sh.subjects[hash] = sub
	sh.store.keys.Add(1)
	heap.Push(&sh.queue, sub)
	return sub
}

// sweep visits up to n subjects that are due and drops the expired ones. A charge does not move its subject's due time:
// sweep corrects it.
func (sh *shard) sweep(now int64, n int) {
	for ; n > 0 && len(sh.queue) > 0 && sh.queue[0].due <= now; n-- {
		sub := sh.queue[0]
		if expires := sub.expires(); expires > now {
			sub.due = expires
			heap.Fix(&sh.queue, 0)
		} else {
			sh.drop(sub)
		}
	}
}

// evict drops the subject that expires first, or nearly so: it corrects a few due times and drops the first subject.
func (sh *shard) evict(now int64) {
	for range 16 {
		sub := sh.queue[0]
		expires := sub.expires()
		if expires == sub.due {
			break
		}
		sub.due = expires
		heap.Fix(&sh.queue, 0)
	}
	sub := sh.queue[0]
	if sub.loose {
		sh.clock.close(now)
	}
	sh.drop(sub)
	sh.evicted++
}

func (sh *shard) drop(sub *subject) {
	if first := sh.subjects[sub.hash]; first != sub {
		for first.next != sub {
			first = first.next
		}
		first.next = sub.next
	} else if sub.next != nil {
		sh.subjects[sub.hash] = sub.next
	} else {
		delete(sh.subjects, sub.hash)
	}
	sh.store.keys.Add(-1)
	heap.Remove(&sh.queue, sub.index)
}

// A queue orders subjects by due time.
type queue []*subject

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	sub := x.(*subject)
	sub.index = len(*q)
	*q = append(*q, sub)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	sub := (*q)[last]
	sub.index = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return sub
}
