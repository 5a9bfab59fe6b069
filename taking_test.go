package sash_test

import (
	"context"
	"errors"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func TestUnitsThatCannotBeTaken(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(10))
	counting := newLimiter(t, memstore.New(nil), &sash.Options{CountRefused: true}, sash.PerHour(10))
	for name, c := range map[string]struct {
		call func(ctx context.Context) (sash.Result, error)
		want error
	}{
		"up to nothing":     {func(ctx context.Context) (sash.Result, error) { return l.AllowUpTo(ctx, "k", 0) }, sash.ErrInvalidCost},
		"up to a blank key": {func(ctx context.Context) (sash.Result, error) { return l.AllowUpTo(ctx, " ", 1) }, sash.ErrInvalidKey},
		"no penalty":        {func(ctx context.Context) (sash.Result, error) { return l.Penalize(ctx, "k", 0) }, sash.ErrInvalidCost},
		"too much penalty":  {func(ctx context.Context) (sash.Result, error) { return l.Penalize(ctx, "k", sash.MaxUnits+1) }, sash.ErrInvalidCost},
		"no reward":         {func(ctx context.Context) (sash.Result, error) { return l.Reward(ctx, "k", -1) }, sash.ErrInvalidCost},
		"too much reward":   {func(ctx context.Context) (sash.Result, error) { return l.Reward(ctx, "k", sash.MaxUnits+1) }, sash.ErrInvalidCost},
		"refused calls":     {func(ctx context.Context) (sash.Result, error) { return counting.Reward(ctx, "k", 1) }, sash.ErrUnsupported},
	} {
		if res, err := c.call(t.Context()); !errors.Is(err, c.want) || res.Charged != 0 {
			t.Errorf("%s: %d, %v; want %v", name, res.Charged, err, c.want)
		}
	}
	if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
		t.Errorf("%d of 10 remain, %v", res.Remaining, err)
	}
	left, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func(context.Context, string, int64) (sash.Result, error){
		"AllowUpTo": l.AllowUpTo, "Penalize": l.Penalize, "Reward": l.Reward,
	} {
		if _, err := call(left, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%s of a caller that has left: %v", name, err)
		}
	}
}

func TestAStoreThatTakesAnotherNumberOfUnitsHasFailed(t *testing.T) {
	for _, charged := range []int64{-1, 0, 6} {
		store := &scripted{answer: func(driver.Request) driver.Answer {
			answer := driver.NewAnswer(1, 0, statuses(1, driver.Status{}))
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
