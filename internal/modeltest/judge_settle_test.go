package modeltest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
)

// firm: a refusal is firm unless a charge may be settled, wherever that charge is.
func (b *bench) firm() error {
	if !b.books() {
		return nil
	}
	const units = 60
	limits := []sash.Limit{sash.Every(units, time.Hour), sash.Every(units, 2*time.Hour)}
	for later := 0; later <= units; later += 4 {
		s := b.scenario(limits[:1+later/4%2]...)
		for i := range units {
			s.settles = i == later
			s.call(1, 0)
			b.clock.Advance(time.Second)
		}
		for range 2 {
			if res := s.call(1, 0); res.Allowed() || res.Firm != (later == units) {
				s.fail("the refusal after charge %d of %d could be settled is firm: %v", later, units, res.Firm)
			}
		}
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// reset: a settlement of a charge from before a reset does nothing.
func (b *bench) reset() error {
	for _, calls := range []int64{1, 40} { // a packed log, and a ring
		s := b.scenario(sash.Every(100, time.Hour))
		before := s.call(4, 0)
		s.reset()
		for range calls {
			b.clock.Advance(time.Microsecond)
			s.call(1, 0)
		}
		s.oracle = nil // which does not know that the charge is gone
		for _, units := range []int64{0, 9} {
			s.settle(4, before, units, "", 1)
			s.wantLeft(100 - calls)
		}
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// given: units that are given back out of a long log, under limits of two windows, are free at once, and only those.
func (b *bench) given() error {
	s := b.scenario(sash.Every(1000, time.Hour), sash.Every(900, 10*time.Minute))
	narrow := b.policy(sash.Every(900, 10*time.Minute))
	policies := [2]*driver.Policy{s.policy, narrow}
	ask := func(costs ...int64) {
		for _, cost := range costs {
			for _, s.policy = range policies {
				s.call(cost, 0)
			}
		}
	}
	give := func(policy *driver.Policy, units int64) {
		s.policy = policy
		req := s.request(units)
		want, sure := s.oracle.Reward(b.clock.Now(), req)
		if !sure || s.err != nil {
			return
		}
		res, err := drivertest.Of(b.store).GiveBack(context.Background(), req)
		if s.err = err; res.Charged != want {
			s.fail("of %d units %d were given back, want %d", units, res.Charged, want)
		}
		s.check([]driver.Request{s.request(0)}, []driver.Answer{res})
		ask(0, 400, 3)
	}
	for n := range 260 {
		b.clock.Advance(2 * time.Second)
		s.call(1+int64(n%3), 0)
	}
	for i, units := range []int64{1, 4, 40, 133, 1, 7, 90} {
		give(policies[i%2], units)
		b.clock.Advance(time.Minute)
	}
	for _, policy := range []*driver.Policy{narrow, policies[0]} { // all of it
		give(policy, 5000)
	}
	b.clock.Advance(time.Second)
	ask(3)
	give(policies[0], 1)
	give(narrow, 2)
	return s.err
}

// settled: units that are given back out of a long log are free at once, and only those; what a call took
// beyond its cost is charged where the call was.
func (b *bench) settled() error {
	s := b.scenario(sash.Every(1000, time.Hour), sash.Every(900, 10*time.Minute))
	var answers []driver.Answer
	for range 300 {
		b.clock.Advance(time.Second)
		answers = append(answers, s.call(2, 0))
	}
	worth := []int64{0, 0, 1, 40, 0, 0, 0, 7}
	for n, i := range []int{299, 298, 63, 64, 150, 0, 1, 297} {
		s.settle(2, answers[i], worth[n], fmt.Sprint("s", i), 2) // once is enough
		for _, cost := range []int64{0, 700, 4} {
			s.call(cost, 0)
		}
		b.clock.Advance(time.Minute)
	}
	return s.err
}

// moved: a charge that a clock that went back has moved takes nothing from others when it is given back, and
// what it took more is charged all the same.
func (b *bench) moved() error {
	if !b.algorithm.Exact() {
		return nil
	}
	for _, c := range []struct{ units, left int64 }{{0, 8}, {9, 4}} {
		s := b.scenario(sash.Every(20, time.Minute))
		s.oracle = nil
		moved := s.call(5, 0)
		b.clock.Advance(-time.Second)
		s.call(0, 0)
		b.clock.Advance(2 * time.Second)
		s.call(7, 0)
		s.settle(5, moved, c.units, s.name, 1)
		if s.wantLeft(c.left); s.err != nil {
			return fmt.Errorf("after a charge that was moved became %d: %w", c.units, s.err)
		}
	}
	return nil
}

// repeated: a call with an ID is remembered although its window is short and its log grows, with a ring that has turned.
func (b *bench) repeated() error {
	s := b.scenario(sash.Every(200, time.Second))
	more := b.policy(sash.Every(400, 2*time.Second), sash.Every(500, 3*time.Second))
	once := func() (answer driver.Answer) {
		if s.err == nil {
			answer, s.err = drivertest.Of(b.store).Once(context.Background(), "id", s.request(1))
		}
		return answer
	}
	short := s.policy
	s.calls(6, 300*time.Millisecond)
	b.clock.Advance(time.Millisecond)
	first := once()
	s.check([]driver.Request{s.request(1)}, []driver.Answer{first})
	made := b.clock.Now()
	for _, after := range []time.Duration{0, driver.RepeatTime - time.Microsecond, driver.RepeatTime + time.Second} {
		s.policy = short
		s.calls(80, 5*time.Millisecond)
		s.policy = more
		s.calls(10, time.Millisecond)
		b.clock.Advance(max(0, after-b.clock.Now().Sub(made)))
		if again := once(); (again.At != first.At) != (after > driver.RepeatTime) || !again.Allowed() {
			s.fail("%v after a call of %d its repetition is decided at %d", b.clock.Now().Sub(made), first.At, again.At)
		}
	}
	return s.err
}

// midnight: calls on two sides of a boundary are counted apart, also in one step of the resolution.
func (b *bench) midnight() error {
	if b.algorithm == sash.SlidingCounter || b.algorithm == sash.GCRA {
		return nil
	}
	s := b.scenario(sash.PerCalendar(9, sash.CalendarHour, nil), sash.Every(100, time.Minute))
	b.clock.Advance(b.clock.Now().Truncate(time.Hour).Add(time.Hour - time.Microsecond).Sub(b.clock.Now()))
	s.call(1, 0)
	s.calls(3, time.Microsecond)
	return s.err
}

// broughtForward: a booking starts now if it has room now, and otherwise stays where it is, as one that has started does.
func (b *bench) broughtForward() error {
	if !b.books() {
		return nil
	}
	s := b.scenario(sash.Every(2, time.Minute))
	s.oracle, s.settles = nil, true
	book := func(wait time.Duration) driver.Answer {
		answer := s.call(2, 10*time.Minute)
		if answer.Delay != wait.Microseconds() {
			s.fail("a booking starts in %d µs, want %v", answer.Delay, wait)
		}
		return answer
	}
	brought := func(answer driver.Answer, want int64) {
		set := driver.Settlement{Request: s.request(2), At: answer.At, Delay: answer.Delay}
		at, err := drivertest.Of(b.store).Extend(context.Background(), set)
		if err != nil || at != want {
			s.fail("a booking was brought forward to %d, want %d (%v)", at, want, err)
		}
	}
	first, second := book(0), book(time.Minute)
	brought(second, 0)
	third := book(2 * time.Minute)
	s.back(2, first)
	brought(second, b.clock.Now().UnixMicro())
	brought(third, 0)
	b.clock.Advance(2*time.Minute + time.Second) // the third has started
	brought(third, 0)
	book(59 * time.Second)
	return errors.Join(s.err, b.settledTogether())
}

// settledTogether: bookings of two subjects are brought forward together or stay, and one settlement that fails leaves the others.
func (b *bench) settledTogether() error {
	ctx := context.Background()
	reqs := []driver.Request{b.request("together a", 2, sash.Every(2, time.Minute)), b.request("together b", 2, sash.Every(2, time.Minute))}
	var sets [2][]driver.Settlement
	for i := range sets {
		for j := range reqs {
			reqs[j].Within, reqs[j].MaySettle = (time.Duration(i) * time.Hour).Microseconds(), true
		}
		answers, err := drivertest.Of(b.store).All(ctx, reqs...)
		for j := 0; err == nil && j < len(reqs); j++ {
			sets[i] = append(sets[i], driver.Settlement{Request: reqs[j], At: answers[j].At, Delay: answers[j].Delay})
		}
		if err != nil || !answers[0].Allowed() {
			return fmt.Errorf("two subjects are not booked: %w", err)
		}
	}
	other := b.request("together, foreign", 2, sash.Every(2, time.Minute))
	foreign := "no log, and longer than the header of one that is packed"
	check(b.scripts.client.Set(ctx, b.store.Key(other.Key, other.Policy), foreign, time.Hour).Err())
	err := drivertest.Of(b.store).Settle(ctx, driver.Settlement{Request: other, At: sets[0][0].At}, sets[0][1])
	look, failed := drivertest.Of(b.store).Decide(ctx, driver.Request{Key: reqs[1].Key, Policy: reqs[1].Policy})
	if err == nil || failed != nil || look.Remaining() != 2 {
		return fmt.Errorf("of two settlements the one on no log ends with %v; the other leaves %d of 2 units, %v", err, look.Remaining(), failed)
	}
	if at, err := drivertest.Of(b.store).Extend(ctx, sets[1]...); at != 0 || err != nil {
		return fmt.Errorf("bookings were brought forward to %d where one subject has no room (%v)", at, err)
	}
	check(drivertest.Of(b.store).Settle(ctx, sets[0][0], sets[1][1]))
	if at, err := drivertest.Of(b.store).Extend(ctx, sets[1]...); at != 0 || err != nil {
		return fmt.Errorf("bookings were brought forward to %d, one of which is gone (%v)", at, err)
	}
	if at, err := drivertest.Of(b.store).Extend(ctx, sets[1][0]); at != b.clock.Now().UnixMicro() || err != nil {
		return fmt.Errorf("a booking that stayed is brought forward to %d (%v)", at, err)
	}
	return nil
}
