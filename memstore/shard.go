package memstore

import (
	"sync"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// A shard owns a part of the keys. mu guards everything below it. Each subject is in one of the two queues.
type shard struct {
	mu       sync.Mutex
	clock    clock
	subjects map[uint64]*subject // by hash; those with the same hash are chained
	free     queue               // subjects that may be evicted
	barred   queue               // subjects that refuse calls
	bytes    int64               // of all subjects
	spare    int64               // bytes of the subjects that may be evicted
	most     int64               // bytes
	store    *Store
	statuses [driver.MaxLimits]driver.Status // of the current decision: here, to avoid an allocation
}

type subject struct {
	id    id
	next  *subject     // with the same hash
	state window.State // nil for a subject with something else than charges
	log   window.Log   // the state under most algorithms: here, to avoid a pointer
	other *beside      // nil for a subject with charges
	loose bool         // a charge may still be settled; once true, it stays true until the subject is dropped

	barred   bool  // it is in the queue of those that refuse calls
	deciding bool  // the current decision needs it
	bytes    int32 // that the subject holds, as last weighed
	refuses  int64 // until when it refuses a call
	used     int64 // units in use after its last decision: the most of all limits

	born  int64  // when it was first charged, or the instant to which the clock has gone back since
	hash  uint64 // of its key
	due   int64  // when the queue visits it
	index int    // in its queue; -1 before and after

	until int64 // when no charge can be settled and no call repeated any more, or when other is over
	ids   *ids  // nil until it has one

	block *window.Block // nil until a refusal is counted
}

func (s *subject) begin(policy *driver.Policy) {
	if n := policy.Block.Refusals; n > 0 {
		s.block = window.NewBlock(n)
	}
	switch policy.Algorithm {
	case driver.FixedWindow:
		s.state = new(window.Counter)
	case driver.SlidingCounter:
		s.state = &window.Counter{Slides: true}
	case driver.GCRA:
		s.state = new(window.GCRA)
	default:
		s.log.Resolution = max(1, policy.Resolution.Microseconds())
		s.state = &s.log
	}
}

// expires returns when the subject can be forgotten, because no charge counts and no settlement does anything any more.
func (s *subject) expires() int64 {
	if s.state == nil {
		return s.until
	}
	return max(s.until, s.state.Expires())
}

// hold keeps the subject for as long as a charge made now may be settled. The charge is at an instant that lies ahead if it is a booking.
func (s *subject) hold(now, at int64, req *driver.Request) {
	s.born = min(s.born, now)
	if !req.MaySettle {
		return
	}
	set := driver.Settlement{Request: *req, At: at}
	s.loose, s.until = true, max(s.until, set.Expires())
}

func (sh *shard) look(now int64, sub *subject, req *driver.Request, statuses []driver.Status) (refusals uint64) {
	if sub != nil {
		refusals = sub.state.Look(now, req.Cost, req.Policy.Limits, statuses)
		sh.note(now, sub, req.Policy.Limits, refusals, statuses)
		return refusals
	}
	for i, l := range req.Policy.Limits {
		statuses[i] = driver.Status{Remaining: l.Units}
	}
	return 0
}

// fit returns the largest part of a request's cost that fits now, or one unit if none does.
func (sh *shard) fit(now int64, hash uint64, req driver.Request) int64 {
	sub, statuses, cost := sh.find(hash, req.Key, req.Policy), sh.statuses[:len(req.Policy.Limits)], req.Cost
	req.Cost = 0
	sh.look(now, sub, &req, statuses)
	for i := range statuses {
		cost = min(cost, max(1, statuses[i].Remaining))
	}
	req.Cost = cost
	if cost > 1 && req.Policy.Algorithm == driver.GCRA && sh.look(now, sub, &req, statuses) != 0 {
		cost-- // Remaining is rounded
	}
	return cost
}

// decide decides a request, and blocks a subject that is refused too often. A blocked subject is not charged. decide returns the subject,
// or nil if there is none. The only error is ErrFull: there is no room for the subject.
func (sh *shard) decide(now int64, hash uint64, req *driver.Request, answer *driver.Answer) (*subject, error) {
	sub := sh.find(hash, req.Key, req.Policy)
	if req.Policy.Block.Refusals == 0 {
		return sh.decideOpen(now, hash, sub, req, answer)
	}
	left := sub.blocked(now)
	if left > 0 {
		req.Cost = 0
	}
	sub, err := sh.decideOpen(now, hash, sub, req, answer)
	if err != nil {
		return nil, err
	}
	if left > 0 {
		window.Bar(answer, left)
	}
	sh.refuse(now, sub, req, answer)
	return sub, nil
}

// blocked returns the time until the block of a subject ends, or 0.
func (s *subject) blocked(now int64) int64 {
	if s == nil {
		return 0
	}
	return s.block.Left(now)
}

// refuse counts the refusal of a request that charges, if the answer is one.
func (sh *shard) refuse(now int64, sub *subject, req *driver.Request, answer *driver.Answer) {
	if answer.Allowed() || req.Cost == 0 || sub == nil {
		return
	}
	by := &req.Policy.Block
	if sub.block == nil { // an earlier policy had no block
		sub.block = window.NewBlock(by.Refusals)
		sh.weigh(sub)
	}
	left := sub.block.Refuse(now, by)
	sub.until = max(sub.until, now+max(left, by.Window))
	if left > 0 {
		window.Bar(answer, left)
		if now+left > sub.refuses {
			sh.bar(sub, now+left)
		}
	}
}

// decideOpen is decide for a subject that is not blocked: it looks, charges when there is room, and sets the answer.
func (sh *shard) decideOpen(now int64, hash uint64, sub *subject, req *driver.Request, answer *driver.Answer) (*subject, error) {
	statuses := sh.statuses[:len(req.Policy.Limits)]
	fresh, full := sub == nil, false
	if fresh {
		if req.Cost == 0 {
			answer.Set(now, sh.look(now, nil, req, statuses), statuses)
			return nil, nil
		}
		if sub = sh.add(now, hash, req.Key, req.Policy); sub == nil {
			return nil, ErrFull
		}
	} else if full = sub.log.Full(); full && !sh.fits(now, sub, req, 0) {
		return nil, ErrFull
	}
	at := now
	var refusals uint64
	switch {
	case req.Forced:
		sub.log.CountRefused = false // charges that the log could drop may still be given back
		sub.state.Charge(now, req.Cost, req.Policy.Limits)
		refusals = sub.state.Look(now, 0, req.Policy.Limits, statuses)
	case booked(req):
		at, refusals = window.Book(&sub.log, now, req.Within, req.Cost, req.Policy.Limits, statuses)
	default:
		refusals = window.Decide(sub.state, now, req.Cost, req.Policy.Limits, req.Policy.CountRefused, statuses)
	}
	if req.Cost > 0 && (refusals == 0 || req.Forced) {
		sub.hold(now, at, req)
	}
	sh.note(now, sub, req.Policy.Limits, refusals, statuses)
	if full || sub.state != window.State(&sub.log) { // otherwise the log has not grown; sweep sees that it shrank
		sh.weigh(sub)
	}
	if fresh {
		sh.enqueue(sub)
	}
	answer.Set(at, refusals, statuses)
	answer.Delay = at - now
	answer.Firm = refusals != 0 && !sub.loose && !req.Policy.CountRefused && sub.log.Until(now) == 0
	return sub, nil
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

// add creates a subject, or returns nil if there is no room for it. The caller puts the subject into a queue.
func (sh *shard) add(now int64, hash uint64, key string, policy *driver.Policy) *subject {
	if !sh.room(now, leastBytes(key)) {
		return nil
	}
	sub := &subject{id: id{key, policy.Algorithm, policy.Resolution}, hash: hash, born: now, index: -1}
	sub.begin(policy)
	sh.weigh(sub)
	sub.next = sh.subjects[hash]
	sh.subjects[hash] = sub
	return sub
}

func (sh *shard) held() int { return len(sh.free) + len(sh.barred) }

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
	sh.bytes -= int64(sub.bytes)
	if sub.index >= 0 {
		sh.dequeue(sub)
	}
}

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
