package sash_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/stack"
)

// A scripted store answers by its function, and settles. It does not book.
type scripted struct {
	answer func(driver.Request) driver.Answer
	settle func()
	waits  time.Duration
}

func (s *scripted) Powers() driver.Powers { return memstore.New(nil).Powers() &^ driver.CanBook }

func (s *scripted) Do(_ context.Context, b *driver.Batch) error {
	for i := range b.Ops {
		op := &b.Ops[i]
		switch {
		case corrects(op) && s.settle != nil:
			s.settle()
		case !corrects(op):
			op.Answer = s.answer(op.Request)
		}
	}
	if !corrects(&b.Ops[0]) {
		time.Sleep(s.waits)
	}
	return nil
}

// statuses are n equal ones.
func statuses(n int, s driver.Status) []driver.Status {
	all := make([]driver.Status, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestAWrongAnswerOfAStoreIsAnErrorThatNamesIt(t *testing.T) {
	three := []sash.Limit{sash.PerMinute(10), sash.PerHour(20), sash.PerDay(30)}
	for name, c := range map[string]struct {
		answer driver.Answer
		want   string
	}{
		"no statuses":            {driver.Answer{}, "0 statuses for a policy with 3 limits"},
		"too few":                {answerOf(1, 1, statuses(2, driver.Status{Retry: 1})), "2 statuses for a policy with 3 limits"},
		"too many":               {answerOf(1, 0, statuses(4, driver.Status{})), "4 statuses for a policy with 3 limits"},
		"more than there can be": {answerOf(1, 0, statuses(9, driver.Status{})), "9 statuses for a policy with 3 limits"},
		"another limit refused":  {answerOf(1, 8, statuses(3, driver.Status{Retry: 1})), "refusals 1000 for a policy with 3 limits"},
		"a high bit":             {answerOf(1, 1<<40, statuses(3, driver.Status{Retry: 1})), "refusals 1"},
		"a negative number":      {answerOf(1, 0, statuses(3, driver.Status{Remaining: -7})), "a negative number for limit 0"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &scripted{answer: func(driver.Request) driver.Answer { return c.answer }}
			l := newLimiter(t, store, nil, three...)
			for _, call := range append(but("Book", "BookAll", "BookAny", "BookOnce"), // of which the store has no power
				call{"Peek", func(a arguments) error { return second(a.Peek(a.ctx, a.key)) }},
				call{"Do", func(a arguments) error { return a.Do(a.ctx, a.key, nil) }}) {
				err := call.make(t.Context(), l, "k", 1)
				if !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %q", call.name, err, c.want)
				}
			}
		})
	}
}

func TestAStoreThatTakesAnotherNumberOfUnitsHasFailed(t *testing.T) {
	for _, charged := range []int64{-1, 0, 6} {
		store := &scripted{answer: func(driver.Request) driver.Answer {
			answer := answerOf(1, 0, statuses(1, driver.Status{}))
			answer.Charged = charged
			return answer
		}}
		l := newLimiter(t, store, nil, sash.PerMinute(50))
		if res, err := l.AllowUpTo(t.Context(), "k", 5); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("%d of up to 5 are charged: %+v, %v", charged, res, err)
		}
		if charged == 0 {
			continue
		}
		if res, err := l.Reward(t.Context(), "k", 5); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("%d of up to 5 are given back: %+v, %v", charged, res, err)
		}
	}
}

// A refusal that claims to have room for the calls that it refuses must not be asked for again and again.
func TestARefusalThatHasRoomDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		store := &scripted{waits: time.Millisecond, answer: func(driver.Request) driver.Answer {
			if calls.Add(1) == 1 { // so that the calls after it are asked for together
				return answerOf(1, 0, statuses(1, driver.Status{Remaining: 90}))
			}
			return answerOf(1, 1, statuses(1, driver.Status{Remaining: 90}))
		}}
		l := newLimiter(t, stack.GroupCommit(store), nil, sash.PerMinute(100))
		for range 20 {
			go func() { _, _ = l.Allow(t.Context(), "k") }()
		}
		time.Sleep(time.Minute)
		if n := calls.Load(); n > 25 {
			t.Errorf("%d requests for 20 calls", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls.Store(1)
		if err := l.Wait(ctx, "k"); err == nil || calls.Load() > 1000 {
			t.Errorf("a wait of a second made %d requests: %v", calls.Load(), err)
		}
		time.Sleep(time.Second) // for a limiter that still looks at the store
	})
}

func corrects(op *driver.Op) bool { return op.Kind == driver.Settle || op.Kind == driver.Extend }

func answerOf(at int64, refusals uint64, statuses []driver.Status) (a driver.Answer) {
	a.Set(at, refusals, statuses)
	return a
}
