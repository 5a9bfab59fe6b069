package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"example.com/sash/driver"
)

var _ driver.Chooser = (*Store)(nil)

// DecideAny implements [driver.Chooser], in one script. On a cluster the error is [driver.ErrApart] for keys of
// different slots, and for requests that may be booked under limits of the calendar: the instants of their bookings can
// lie outside any boundaries that are sent. The script looks at each subject that it has to compare, so its time grows
// with them: see any.lua.
func (s *Store) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	var answers [1]driver.Answer
	keys := make([]string, len(reqs))
	for i := range reqs {
		keys[i] = s.Key(reqs[i].Key, reqs[i].Policy)
		if s.scripts.Cluster() && slot(keys[i]) != slot(keys[0]) {
			return 0, driver.Answer{}, driver.ErrApart
		}
	}
	if reqs[0].Policy.Block.Refusals > 0 {
		return 0, driver.Answer{}, driver.ErrApart // each counts its refusals
	}
	now := calendarNow(reqs)
	if reqs[0].Within > 0 && now != 0 {
		return 0, driver.Answer{}, driver.ErrApart
	}
	script := anyOf[reqs[0].Policy.Algorithm]
	for range 3 {
		reply, err := s.run(ctx, reqs, script, keys, packAny(reqs, now))
		if err != nil {
			return 0, driver.Answer{}, err
		}
		chosen := 0
		if len(reply) > 16 && int64(number(reply)) != -1 { // otherwise the calendar boundaries did not surround the server's time
			n := len(reply) - 2
			chosen, reply = int(binary.BigEndian.Uint16([]byte(reply[n:]))), reply[:n]
		}
		if chosen >= len(reqs) {
			return 0, driver.Answer{}, fmt.Errorf("redisstore: a script chose subject %d of %d", chosen, len(reqs))
		}
		decided, at, err := unpack(reqs[chosen:chosen+1], reply, answers[:])
		if err != nil || decided {
			return chosen, answers[0], err
		}
		now = at
	}
	return 0, driver.Answer{}, errors.New("redisstore: the server's clock is not steady enough for a calendar limit")
}

// packAny writes the argument of any.lua. Requests that are equal but for their keys, as those of most pools, are written
// once.
func packAny(reqs []driver.Request, now int64) string {
	books := reqs[0].Within > 0 && compact(reqs[0].Policy.Algorithm)
	b, before := []byte{0}, ""
	each := func(most int64) {
		for _, req := range reqs {
			req.Within = min(req.Within, most)
			packed := pack([]driver.Request{req}, false, now)
			if compact(req.Policy.Algorithm) {
				packed += packBooking(req.Within, 0)
			}
			if packed == before {
				b = append(b, 0, 0)
				continue
			}
			b = append(appendUint(b, 2, int64(len(packed))), packed...)
			before = packed
		}
	}
	each(1) // now: a call that may not be booked at all would go ahead of bookings
	if books {
		b[0], before = 1, ""
		each(driver.MaxAhead)
	}
	return string(b)
}
