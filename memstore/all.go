package memstore

import (
	"math"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

// A member is one of several operations that are carried out together, and where its subject is.
type member struct {
	*driver.Op
	sh   *shard // which is locked
	hash uint64
	sub  *subject    // nil if there is none
	log  *window.Log // an empty one if there is none
}

// lock locks the shards of all operations, in order, so that two calls cannot deadlock. It returns one time for all, the
// latest. The caller unlocks the shards.
func (s *Store) lock(ops []driver.Op) (members []member, now int64, shards []int) {
	members, shards = make([]member, len(ops)), make([]int, len(ops))
	for i := range ops {
		hash := s.hash(ops[i].Key)
		shards[i] = s.index(hash)
		members[i] = member{Op: &ops[i], sh: &s.shards[shards[i]], hash: hash}
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	for _, i := range shards {
		s.shards[i].mu.Lock()
		now = max(now, s.shards[i].clock.now())
	}
	for _, i := range shards {
		s.shards[i].clock.last = now
	}
	return members, now, shards
}

func (s *Store) unlock(shards []int) {
	for _, i := range shards {
		s.shards[i].mu.Unlock()
	}
}

// noCharges is the log of members without a subject. It is never charged.
var noCharges window.Log

func (m *member) find() {
	m.log = &noCharges
	if m.sub = m.sh.find(m.hash, m.Key, m.Policy); m.sub != nil {
		m.log = &m.sub.log
	}
}

func (s *Store) all(ops []driver.Op) error {
	asked, blocks := ops, ops[0].Policy.Block.Refusals > 0
	if blocks {
		asked = slices.Clone(ops)
	}
	members, now, shards := s.lock(asked)
	defer s.unlock(shards)
	for i := range members {
		members[i].find()
	}
	if !blocks {
		return decideAll(members, now)
	}
	lefts, out := make([]int64, len(ops)), false
	for i := range members {
		lefts[i] = members[i].sub.blocked(now)
		out = out || lefts[i] > 0
	}
	for i := range asked {
		if out {
			asked[i].Cost = 0
		}
	}
	if err := decideAll(members, now); err != nil {
		return err
	}
	for i := range ops {
		op, m := &ops[i], &members[i]
		if op.Answer = m.Answer; lefts[i] > 0 {
			window.Bar(&op.Answer, lefts[i])
			continue
		}
		if out {
			window.Foresee(&op.Answer, op.Cost)
		}
		m.sh.refuse(now, m.sub, &op.Request, &op.Answer)
	}
	return nil
}

// decideAll is all without blocks.
func decideAll(members []member, now int64) error {
	var room [driver.MaxLimits]driver.Status
	charge, books := true, false
	for i := range members {
		m := &members[i]
		statuses := room[:len(m.Policy.Limits)]
		m.Answer.Set(now, m.sh.look(now, m.sub, &m.Request, statuses), statuses)
		charge, books = charge && m.Answer.Allowed(), books || booked(&m.Request)
	}
	at := now
	if books || !charge && !members[0].Policy.CountRefused {
		first, from, ahead := behind(members, now)
		switch {
		case !books:
			if ahead {
				wait(members, first-now)
			}
			return nil
		case charge && !ahead:
			books = false
		case refuseAll(members, now, first, from):
			return nil
		default:
			at = first
		}
	}
	if !hold(members, now) {
		return ErrFull
	}
	for i := range members {
		if m := &members[i]; m.Cost > 0 {
			m.charge(now, at, charge || books)
		}
	}
	return nil
}

// charge charges a member at an instant, now or ahead, and sets the answer as of that instant.
func (m *member) charge(now, at int64, admitted bool) {
	sub, limits := m.sub, m.Policy.Limits
	statuses, refused, later := m.sh.statuses[:len(limits)], uint64(0), uint64(0)
	sub.hold(now, at, &m.Request)
	switch {
	case at > now:
		sub.log.ChargeAt(now, at, m.Cost, limits)
		sub.log.LookFrom(now, at, limits, statuses)
	case admitted:
		sub.state.Charge(now, m.Cost, limits)
		window.Left(sub.state, now, limits, statuses)
	default:
		sub.state.Charge(now, m.Cost, limits)
		refused, later = m.Answer.Refusals, sub.state.Look(now, m.Cost, limits, statuses)
	}
	m.sh.note(now, sub, limits, later, statuses)
	m.Answer.Set(at, refused, statuses)
	m.Answer.Delay = at - now
	m.sh.weigh(sub)
	if sub.deciding = false; sub.index < 0 {
		m.sh.enqueue(sub)
	}
}

// hold gives a subject to each member that is going to be charged. None of them is evicted to make room for another. hold reports
// false, and adds no subject, if there is no room for one or one cannot grow.
func hold(members []member, now int64) bool {
	for i := range members {
		if m := &members[i]; m.Cost > 0 && m.sub != nil {
			m.sub.deciding = true
		}
	}
	fits := true
	for i := 0; fits && i < len(members); i++ {
		switch m := &members[i]; {
		case m.Cost == 0:
		case m.sub == nil:
			m.sub = m.sh.add(now, m.hash, m.Key, m.Policy)
			fits = m.sub != nil
		default:
			fits = m.sh.grow(now, m.sub, m.log.Grows(now, m.Policy.Limits))
		}
	}
	for i := 0; !fits && i < len(members); i++ {
		if m := &members[i]; m.Cost > 0 && m.sub != nil {
			if m.sub.deciding = false; m.sub.index < 0 {
				m.sh.drop(m.sub)
			}
		}
	}
	return fits
}

func booked(req *driver.Request) bool { return req.Within > 0 && req.Cost > 0 && req.Policy.Bookable() }

// behind returns the first instant at which all members have room behind all bookings. from is the last booking, or now, and ahead says
// whether any booking lies ahead. If there are gaps, at is the first instant at which all members fit and delay no booking.
func behind(members []member, now int64) (at, from int64, ahead bool) {
	from = now
	for i := range members {
		if m := &members[i]; m.Cost > 0 {
			until := m.log.Until(now)
			from, ahead = max(from, until), ahead || until > 0
		}
	}
	at, gaps := from, false
	for i := range members {
		if m := &members[i]; m.Cost > 0 {
			at = max(at, m.log.Behind(from, m.Cost, m.Policy.Limits))
			gaps = gaps || m.Within > 1 && m.log.Gaps(now)
		}
	}
	if gaps {
		at = min(at, gap(members, now))
	}
	return at, from, ahead
}

// gap returns the first instant, not before at, at which all members fit and delay no booking, or the last instant if it finds none.
func gap(members []member, at int64) int64 {
	for range threshold.Log.Logs {
		was := at
		for i := range members {
			if m := &members[i]; m.Cost > 0 {
				at = m.log.Earliest(at, m.Cost, m.Policy.Limits)
			}
		}
		if at == was {
			return at
		}
	}
	return math.MaxInt64
}

// refuseAll sets the answers to a refusal unless all members can be booked at one instant, and reports whether it has refused. No
// booking is later than from. A limit that is exceeded refuses a request without a cost.
func refuseAll(members []member, now, at, from int64) (refused bool) {
	late := false
	for i := range members {
		m := &members[i]
		late = late || m.Cost > 0 && (at-now > m.Within || m.log.Crowded(now))
	}
	var room [driver.MaxLimits]driver.Status
	for i := range members {
		m := &members[i]
		if m.Cost > 0 && late {
			statuses := room[:len(m.Policy.Limits)]
			m.Answer.Set(now, m.log.Refuse(now, from, m.Within, m.Cost, m.Policy.Limits, statuses), statuses)
		}
		refused = refused || (late || m.Cost == 0) && !m.Answer.Allowed()
	}
	return refused
}

// wait sets the retry time of refused requests while bookings lie ahead: the time until all requests have room behind the bookings.
func wait(members []member, retry int64) {
	for i := range members {
		answer := &members[i].Answer
		statuses := slices.Clone(answer.Statuses())
		for j := range statuses {
			if answer.Refusals&(1<<j) != 0 {
				statuses[j].Retry = retry
			}
		}
		answer.Set(answer.At, answer.Refusals, statuses)
	}
}

func (s *Store) any(b *driver.Batch) error {
	if b.Ops[0].Policy.Block.Refusals > 0 {
		return driver.ErrApart // each subject counts its refusals
	}
	members, now, shards := s.lock(b.Ops)
	defer s.unlock(shards)
	b.Chosen = choose(members, now)
	m := &members[b.Chosen]
	_, err := m.sh.decide(now, m.hash, &m.Request, &m.Answer)
	return err
}

// choose returns the index of the charge to decide.
func choose(members []member, now int64) int {
	best, most := -1, 0.0
	soonest, shortest := 0, int64(0)
	for i := range members {
		room, wait := members[i].room(now)
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

// room returns the room that a member would leave, and the time until it fits or its booking starts.
func (m *member) room(now int64) (room float64, wait int64) {
	m.find()
	var statuses [driver.MaxLimits]driver.Status
	look := statuses[:len(m.Policy.Limits)]
	refusals := m.sh.look(now, m.sub, &m.Request, look)
	if booked(&m.Request) {
		if until := m.log.Until(now); refusals != 0 || until > 0 {
			return 0, m.log.Behind(max(until, now), m.Cost, m.Policy.Limits) - now
		}
	}
	for i := range look {
		if refusals&(1<<i) != 0 {
			wait = max(wait, look[i].Retry)
		}
	}
	return apart.Room(&m.Request, look), wait
}
