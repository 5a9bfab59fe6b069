package memstore

import (
	"math"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

func (s *Store) all(ops []driver.Op) error {
	defer s.lock(ops)()
	if ops[0].Policy.Block.Refusals == 0 {
		return s.decideAll(ops)
	}
	lefts, out := make([]int64, len(ops)), false
	asked := slices.Clone(ops)
	for i := range ops {
		sh, hash, now := s.at(ops[i].Key)
		lefts[i] = sh.blocked(now, hash, &ops[i].Request)
		out = out || lefts[i] > 0
	}
	for i := range asked {
		if out {
			asked[i].Cost = 0
		}
	}
	err := s.decideAll(asked)
	if err != nil {
		return err
	}
	for i := range ops {
		op := &ops[i]
		if op.Answer = asked[i].Answer; lefts[i] > 0 {
			window.Bar(&op.Answer, lefts[i])
			continue
		}
		if out {
			window.Foresee(&op.Answer, op.Cost)
		}
		sh, hash, now := s.at(op.Key)
		sh.refuse(now, hash, &op.Request, &op.Answer)
	}
	return nil
}

// decideAll is all without blocks. The caller holds the locks.
func (s *Store) decideAll(ops []driver.Op) error {
	var room [driver.MaxLimits]driver.Status
	charge, books := true, false
	for i := range ops {
		op := &ops[i]
		statuses := room[:len(op.Policy.Limits)]
		sh, hash, now := s.at(op.Key)
		op.Answer.Set(now, sh.look(now, hash, &op.Request, statuses), statuses)
		charge, books = charge && op.Answer.Allowed(), books || booked(&op.Request)
	}
	var at int64
	if books || !charge && !ops[0].Policy.CountRefused {
		var from int64
		var ahead bool
		at, from, ahead = s.behind(ops)
		switch {
		case !books:
			if ahead {
				wait(ops, at)
			}
			return nil
		case charge && !ahead:
			books = false
		case s.refuseAll(ops, at, from):
			return nil
		}
	}
	subjects := make([]*subject, len(ops))
	if !s.hold(subjects, ops) {
		return ErrFull
	}
	for i, sub := range subjects {
		op := &ops[i]
		if op.Cost == 0 {
			continue
		}
		if !books {
			at = op.Answer.At
		}
		sh := s.shard(sub.hash)
		sh.chargeAll(sub, op, at, charge || books)
		sh.weigh(sub)
		sub.deciding = false
		if sub.index < 0 {
			sh.enqueue(sub)
		}
	}
	return nil
}

// chargeAll charges one of several subjects at an instant, that of its answer or one ahead, and sets the answer to what is left then.
func (sh *shard) chargeAll(sub *subject, op *driver.Op, at int64, admitted bool) {
	req, answer := &op.Request, &op.Answer
	now, limits := answer.At, req.Policy.Limits
	statuses, refused, later := sh.statuses[:len(limits)], uint64(0), uint64(0)
	sub.hold(now, at, req)
	switch {
	case at > now:
		sub.log.ChargeAt(now, at, req.Cost, limits)
		sub.log.LookFrom(now, at, limits, statuses)
	case admitted:
		sub.state.Charge(now, req.Cost, limits)
		window.Left(sub.state, now, limits, statuses)
	default:
		sub.state.Charge(now, req.Cost, limits)
		refused, later = answer.Refusals, sub.state.Look(now, req.Cost, limits, statuses)
	}
	sh.note(now, sub, limits, later, statuses)
	answer.Set(at, refused, statuses)
	answer.Delay = at - now
}

// hold fills in the subjects that are going to be charged, each of which exists then, and stays while there is room made
// for the others. It reports false, and adds none, if one has no place or cannot grow.
func (s *Store) hold(subjects []*subject, ops []driver.Op) bool {
	for i := range ops {
		req := &ops[i].Request
		if hash := s.hash(req.Key); req.Cost > 0 {
			if subjects[i] = s.shard(hash).find(hash, req.Key, req.Policy); subjects[i] != nil {
				subjects[i].deciding = true
			}
		}
	}
	for i := range ops {
		req := &ops[i].Request
		if req.Cost == 0 {
			continue
		}
		hash := s.hash(req.Key)
		sh, now := s.shard(hash), ops[i].Answer.At
		known := subjects[i] != nil
		if !known {
			subjects[i] = sh.add(now, hash, req.Key, req.Policy)
		}
		if subjects[i] == nil || known && !sh.grow(now, subjects[i], subjects[i].log.Grows(now, req.Policy.Limits)) {
			for _, sub := range subjects {
				if sub == nil {
					continue
				}
				if sub.deciding = false; sub.index < 0 {
					s.shard(sub.hash).drop(sub)
				}
			}
			return false
		}
	}
	return true
}

// lock locks the shards of all operations, in order, so that two calls cannot deadlock. While they are locked, no clock of
// theirs shows an earlier time than another one that trembles.
func (s *Store) lock(ops []driver.Op) (unlock func()) {
	shards := make([]int, len(ops))
	for i := range ops {
		shards[i] = s.index(s.hash(ops[i].Key))
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	var now int64
	for _, i := range shards {
		s.shards[i].mu.Lock()
		now = max(now, s.shards[i].clock.now())
	}
	for _, i := range shards {
		s.shards[i].clock.last = now
	}
	return func() {
		for _, i := range shards {
			s.shards[i].mu.Unlock()
		}
	}
}

func booked(req *driver.Request) bool { return req.Within > 0 && req.Cost > 0 && req.Policy.Bookable() }

func (s *Store) log(req *driver.Request) *window.Log {
	hash := s.hash(req.Key)
	if sub := s.shard(hash).find(hash, req.Key, req.Policy); sub != nil {
		return &sub.log
	}
	return new(window.Log)
}

// behind returns the first instant at which all requests have room, from one on that is behind all bookings, and whether any lies ahead.
// Once units came back before those, it is the first instant at which all fit and delay none. The answers are those of a look.
func (s *Store) behind(ops []driver.Op) (at, from int64, ahead bool) {
	now, gaps := int64(0), false
	for i := range ops {
		look := ops[i].Answer.At
		now = max(now, look)
		if req := &ops[i].Request; req.Cost > 0 {
			until := s.log(req).Until(look)
			from, ahead = max(from, until, look), ahead || until > 0
		}
	}
	at = from
	for i := range ops {
		if req := &ops[i].Request; req.Cost > 0 {
			at = max(at, s.log(req).Behind(from, req.Cost, req.Policy.Limits))
			gaps = gaps || req.Within > 1 && s.log(req).Gaps(ops[i].Answer.At)
		}
	}
	if gaps {
		at = min(at, s.gap(ops, now))
	}
	return at, from, ahead
}

// gap returns the first instant from now on at which all requests fit and delay no booking, or a late one if it is not found.
func (s *Store) gap(ops []driver.Op, at int64) int64 {
	for range threshold.Log.Logs {
		was := at
		for i := range ops {
			if req := &ops[i].Request; req.Cost > 0 {
				at = s.log(req).Earliest(at, req.Cost, req.Policy.Limits)
			}
		}
		if at == was {
			return at
		}
	}
	return math.MaxInt64
}

// refuseAll sets the answers to a refusal if not all requests can be booked for an instant, and reports whether that is so. No
// booking is later than from. A request without a cost is refused by a limit that is exceeded.
func (s *Store) refuseAll(ops []driver.Op, at, from int64) (refused bool) {
	late := false
	for i := range ops {
		req, now := &ops[i].Request, ops[i].Answer.At
		late = late || req.Cost > 0 && (at-now > req.Within || s.log(req).Crowded(now))
	}
	var room [driver.MaxLimits]driver.Status
	for i := range ops {
		req, answer := &ops[i].Request, &ops[i].Answer
		if req.Cost > 0 && late {
			statuses := room[:len(req.Policy.Limits)]
			refusals := s.log(req).Refuse(answer.At, from, req.Within, req.Cost, req.Policy.Limits, statuses)
			answer.Set(answer.At, refusals, statuses)
		}
		refused = refused || (late || req.Cost == 0) && !answer.Allowed()
	}
	return refused
}

// wait sets how long requests wait that are refused while bookings lie ahead: until all have room behind them.
func wait(ops []driver.Op, at int64) {
	for i := range ops {
		answer := &ops[i].Answer
		statuses := slices.Clone(answer.Statuses())
		for j := range statuses {
			if answer.Refusals&(1<<j) != 0 {
				statuses[j].Retry = at - answer.At
			}
		}
		answer.Set(answer.At, answer.Refusals, statuses)
	}
}

func (s *Store) any(b *driver.Batch) error {
	if b.Ops[0].Policy.Block.Refusals > 0 {
		return driver.ErrApart // each counts its refusals
	}
	defer s.lock(b.Ops)()
	b.Chosen = s.choose(b.Ops)
	op := &b.Ops[b.Chosen]
	sh, hash, now := s.at(op.Key)
	if !sh.decide(now, hash, &op.Request, &op.Answer) {
		return ErrFull
	}
	return nil
}

// choose returns the charge that is decided. The caller holds the locks of all.
func (s *Store) choose(ops []driver.Op) int {
	best, most := -1, 0.0
	soonest, shortest := 0, int64(0)
	for i := range ops {
		room, wait := s.find(&ops[i].Request)
		switch {
		case wait == 0 && (best < 0 || room > most):
			best, most = i, room
		case i == 0 || wait < shortest:
			soonest, shortest = i, wait
		}
		if best >= 0 && (i+1)%driver.ChoiceGroup == 0 {
			break
		}
	}
	if best >= 0 {
		return best
	}
	return soonest
}

// find returns the room that a request would leave, and how long it waits: until it fits, or until it can be booked.
func (s *Store) find(req *driver.Request) (room float64, wait int64) {
	var statuses [driver.MaxLimits]driver.Status
	look := statuses[:len(req.Policy.Limits)]
	sh, hash, now := s.at(req.Key)
	refusals := sh.look(now, hash, req, look)
	if booked(req) {
		log := s.log(req)
		if until := log.Until(now); refusals != 0 || until > 0 {
			return 0, log.Behind(max(until, now), req.Cost, req.Policy.Limits) - now
		}
	}
	for i := range look {
		if refusals&(1<<i) != 0 {
			wait = max(wait, look[i].Retry)
		}
	}
	return apart.Room(req, look), wait
}
