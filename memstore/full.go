package memstore

import (
	"container/heap"
	"errors"
	"math/rand/v2"

	"example.com/sash/driver"
)

// ErrFull is the error of a call that needs memory when the store is full and cannot evict another key: see Options.MaxBytes. Nothing was
// charged. A limiter returns it as sash.ErrUnavailable. Package failover counts it as a failure of the store, and enough failures take the
// store down for all keys. If failover's Classify returns Rejected for it, new keys get ErrFull in every failure mode instead.
var ErrFull = errors.New("memstore: the store is full, and evicts no key for this one: let it hold more (MaxBytes), or wait")

// A full shard evicts the least used of this many subjects, beginning at a random one.
const candidates = 8

// note records the units that a subject has in use after a decision, and until when the subject is kept: as long as it refuses a call of
// one unit or a call that it has refused, or has bookings ahead. It only compares, unless the subject has to be kept from now on.
func (sh *shard) note(now int64, sub *subject, limits []driver.Limit, refusals uint64, statuses []driver.Status) {
	var used, wait int64
	for i := range statuses {
		s := &statuses[i]
		used = max(used, limits[i].Units-s.Remaining)
		if refusals&(1<<i) != 0 {
			wait = max(wait, s.Retry)
		} else if s.Remaining == 0 {
			wait = max(wait, s.Release)
		}
	}
	sub.used = used
	if wait = max(wait, sub.log.Until(now)-now); wait > 0 && now+wait > sub.refuses {
		sh.bar(sub, now+wait)
	}
}

// leastBytes returns the bytes of a subject of a key, with its places in the map and in a queue and the first ring of its log.
func leastBytes(key string) int { return 352 + (len(key)+15)&^15 }

// weigh counts the bytes of a subject, after anything that may have changed them.
func (sh *shard) weigh(sub *subject) {
	n := leastBytes(sub.id.key) + sub.ids.bytes() + sub.block.Bytes() + sub.other.bytes()
	if sub.state != nil {
		n += sub.state.Bytes()
	}
	sh.bytes += int64(n) - int64(sub.bytes)
	if sub.index >= 0 && !sub.barred {
		sh.spare += int64(n) - int64(sub.bytes)
	}
	sub.bytes = int32(n)
}

// fits makes room for a request on an existing subject, if the request will be charged and that takes memory: more bytes, and
// those by which the log grows. It reports false if there is no room.
func (sh *shard) fits(now int64, sub *subject, req *driver.Request, more int) bool {
	limits := req.Policy.Limits
	if more += sub.log.Grows(now, limits); more == 0 || sh.has(more) || req.Cost == 0 {
		return true
	}
	refused := sub.block.Left(now) > 0 || sub.state.Look(now, req.Cost, limits, sh.statuses[:len(limits)]) != 0
	if refused && booked(req) {
		_, ok := sub.log.Place(now, req.Within, req.Cost, limits)
		refused = !ok
	}
	return refused && !req.Forced && !req.Policy.CountRefused || sh.grow(now, sub, more)
}

// grow makes room for a subject to grow, and reports whether there is some.
func (sh *shard) grow(now int64, sub *subject, more int) bool {
	if more == 0 || sh.has(more) {
		return true
	}
	deciding := sub.deciding
	sub.deciding = true
	ok := sh.room(now, more)
	sub.deciding = deciding
	return ok
}

func (sh *shard) has(more int) bool { return sh.bytes+int64(more) <= sh.most }

func (sh *shard) bar(sub *subject, until int64) {
	sub.refuses = until
	if !sub.barred {
		sh.move(sub, true)
	}
}

// settled records that a settlement charged or gave back units. It does not look, because a look moves charges later than
// now. Instead it keeps a subject that may have no unit left until all its charges have left.
func (sh *shard) settled(now int64, sub *subject, more int64, limits []driver.Limit) {
	expires := sub.state.Expires()
	sh.weigh(sub)
	switch {
	case more > 0:
		sub.used += more
		for i := range limits {
			if sub.used >= limits[i].Units && expires > sub.refuses {
				sh.bar(sub, expires)
			}
		}
	case sub.barred && expires <= now: // nothing is charged
		sub.refuses = now
		sh.move(sub, false)
	}
}

func (sh *shard) queueOf(sub *subject) *queue {
	if sub.barred {
		return &sh.barred
	}
	return &sh.free
}

// enqueue puts a subject into its queue. The queue visits a subject that refuses calls when that is over, and others when they expire.
func (sh *shard) enqueue(sub *subject) {
	sub.due = sub.expires()
	if sub.barred {
		sub.due = sub.refuses
	} else {
		sh.spare += int64(sub.bytes)
	}
	heap.Push(sh.queueOf(sub), sub)
}

func (sh *shard) dequeue(sub *subject) {
	if !sub.barred {
		sh.spare -= int64(sub.bytes)
	}
	heap.Remove(sh.queueOf(sub), sub.index)
}

// move puts a subject into the other queue. A new subject is in none yet.
func (sh *shard) move(sub *subject, barred bool) {
	if sub.index < 0 {
		sub.barred = barred
		return
	}
	sh.dequeue(sub)
	sub.barred = barred
	sh.enqueue(sub)
}

// room makes room for more bytes, and reports whether it could. It evicts nothing if that would not be enough.
func (sh *shard) room(now int64, more int) bool {
	sh.sweep(now, 4)
	for !sh.has(more) && sh.held() > 0 {
		if !sh.has(more - int(sh.spare)) {
			sh.sweep(now, 16) // perhaps some subjects refuse nothing any more
		}
		sub := sh.victim()
		if sub == nil || len(sh.barred) > 0 && !sh.has(more-int(sh.spare)) {
			sh.store.turned.Add(1)
			return false
		}
		if sub.loose {
			sh.clock.close(now)
		}
		sh.drop(sub)
		sh.store.evicted.Add(1)
	}
	return true
}

// victim returns the least used of some subjects that refuse nothing, or nil if there are none. The subjects of the
// current decision are not among them.
func (sh *shard) victim() (least *subject) {
	n := len(sh.free)
	if n == 0 {
		return nil
	}
	first := rand.IntN(n)
	for i := range min(n, candidates) {
		sub := sh.free[(first+i)%n]
		if !sub.deciding && (least == nil || sub.used < least.used) {
			least = sub
		}
	}
	return least
}

// sweep visits up to n due subjects of each queue. It drops expired subjects, and makes those that refuse nothing any more
// free to be evicted. A charge does not change its subject's due time: sweep corrects it.
func (sh *shard) sweep(now int64, n int) {
	for _, q := range [...]*queue{&sh.free, &sh.barred} {
		for visits := n; visits > 0 && len(*q) > 0 && (*q)[0].due <= now && !(*q)[0].deciding; visits-- {
			sub := (*q)[0]
			switch expires := sub.expires(); {
			case expires <= now:
				sh.drop(sub)
			case sub.barred && sub.refuses <= now:
				sh.move(sub, false)
			default:
				sh.weigh(sub)
				if sub.due = expires; sub.barred {
					sub.due = sub.refuses
				}
				heap.Fix(q, 0)
			}
		}
	}
}
