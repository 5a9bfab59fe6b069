package memstore

import (
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// booked reports whether a request may be booked.
func booked(req *driver.Request) bool { return req.Within > 0 && req.Cost > 0 && req.Policy.Bookable() }

// log returns the log of a request's subject, or an empty one.
func (s *Store) log(req *driver.Request) *window.Log {
	hash := s.hash(req.Key)
	if sub := s.shard(hash).find(hash, req.Key, req.Policy); sub != nil {
		return &sub.log
	}
	return new(window.Log)
}

// behind returns the first instant at which all requests have room, from one on that is behind all bookings, and whether
// any lies ahead. The answers are those of a look.
func (s *Store) behind(reqs []driver.Request, answers []driver.Answer) (at, from int64, ahead bool) {
	for i := range reqs {
		if req := &reqs[i]; req.Cost > 0 {
			until := s.log(req).Until(answers[i].At)
			from, ahead = max(from, until, answers[i].At), ahead || until > 0
		}
	}
	at = from
	for i := range reqs {
		if req := &reqs[i]; req.Cost > 0 {
			at = max(at, s.log(req).Behind(from, req.Cost, req.Policy.Limits))
		}
	}
	return at, from, ahead
}

// refuseAll sets the answers to a refusal if not all requests can be booked together, and reports whether that is so. No
// booking is later than from. A request without a cost is refused by a limit that is exceeded.
func (s *Store) refuseAll(reqs []driver.Request, answers []driver.Answer, from int64) (refused bool) {
	var room [driver.MaxLimits]driver.Status
	for i := range reqs {
		req, answer := &reqs[i], &answers[i]
		if req.Cost > 0 {
			statuses := room[:len(req.Policy.Limits)]
			refusals := s.log(req).Refuse(answer.At, from, req.Within, req.Cost, req.Policy.Limits, statuses)
			answer.Set(answer.At, refusals, statuses)
		}
		refused = refused || !answer.Allowed()
	}
	return refused
}

// wait sets how long requests wait that are refused while bookings lie ahead: until all have room behind them.
func wait(answers []driver.Answer, at int64) {
	for i := range answers {
		answer := &answers[i]
		statuses := slices.Clone(answer.Statuses())
		for j := range statuses {
			if answer.Refusals&(1<<j) != 0 {
				statuses[j].Retry = at - answer.At
			}
		}
		answer.Set(answer.At, answer.Refusals, statuses)
	}
}

// book charges a request at an instant ahead.
func (sh *shard) book(sub *subject, req *driver.Request, at int64, answer *driver.Answer) {
	now := answer.At
	sub.hold(now, at, req)
	sub.log.ChargeAt(now, at, req.Cost, req.Policy.Limits)
	statuses := sh.statuses[:len(req.Policy.Limits)]
	sub.log.LookFrom(now, at, req.Policy.Limits, statuses)
	sh.note(now, sub, req.Policy.Limits, 0, statuses)
	answer.Set(at, 0, statuses)
	answer.Delay = at - now
}
