package coalesce

import (
	"context"
	"fmt"
	"time"

	"example.com/sash/driver"
)

const (
	// mostBookings is the most bookings of a batch. It bounds how long the store is busy with one, and redisstore makes a
	// round trip for as many.
	mostBookings = 64
	// afterwards bounds what goes on after the callers of a batch have left: the decision, and then giving back.
	afterwards = time.Second
)

// book adds a booking to the key's queue. Each booking has an instant of its own, so a batch has no sum that could be
// charged: the store decides its requests one after the other, in one round trip.
func (s *Store) book(ctx context.Context, sh *shard, req driver.Request) (driver.Answer, error) {
	sh.mu.Lock()
	q := sh.bookings[req.Key]
	if q == nil {
		q = &queue{key: req.Key, in: sh.bookings}
		sh.bookings[req.Key] = q
		go s.run(sh, q)
	}
	c := s.join(ctx, q, req)
	sh.mu.Unlock()
	return s.await(sh, q, c)
}

// bookAll answers every call of a batch of bookings, whatever the store does.
func (s *Store) bookAll(sh *shard, b *batch) {
	defer b.cancel()
	answers, err := s.decideEach(b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i, c := range b.open {
		var answer driver.Answer
		if err == nil {
			answer = answers[i]
		}
		switch {
		case !c.left:
			c.reply(answer, err)
		case err == nil:
			s.giveBack(c, answer)
		}
	}
}

// decideEach returns the answers to a batch.
func (s *Store) decideEach(b *batch) (answers []driver.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("coalesce: the store panicked: %v", p)
		}
	}()
	reqs := make([]driver.Request, len(b.open))
	for i, c := range b.open {
		reqs[i] = c.req
	}
	if answers, err = s.each.DecideEach(b.ctx, reqs); err == nil {
		err = driver.CheckAll(reqs, answers)
	}
	return answers, err
}

// giveBack gives a booking back in the background, if the answer admitted it: its caller has left.
func (s *Store) giveBack(c *call, answer driver.Answer) {
	if !answer.Allowed() || !c.req.MaySettle {
		return
	}
	set := driver.Settlement{Request: c.req, At: answer.At, Delay: answer.Delay, Source: answer.Source}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), afterwards)
	go func() {
		defer cancel()
		defer func() { _ = recover() }() // a store that panics must not end the process: no caller is on this goroutine
		_ = s.Settle(ctx, set)
	}()
}
