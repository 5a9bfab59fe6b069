package sash_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func remaining(t *testing.T, l *sash.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// apartStore is a store whose subjects all live in different places, as on a cluster.
type apartStore struct{ *memstore.Store }

func (apartStore) DecideAll(context.Context, []driver.Request) ([]driver.Answer, error) {
	return nil, driver.ErrApart
}

func (apartStore) DecideAny(context.Context, []driver.Request) (int, driver.Answer, error) {
	return 0, driver.Answer{}, driver.ErrApart
}

// eachWay runs a test on a store that decides over several subjects in one step, and on one that does not, in bubbles.
func eachWay(t *testing.T, test func(t *testing.T, store driver.Store)) {
	for name, wrap := range map[string]func(*memstore.Store) driver.Store{
		"in one step": func(s *memstore.Store) driver.Store { return s },
		"one by one":  func(s *memstore.Store) driver.Store { return apartStore{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, wrap(memstore.New(nil))) })
		})
	}
}

// localFor is a store that decides about one of its subjects elsewhere.
type localFor struct {
	driver.MultiStore
	key   string
	cause error
}

func (s localFor) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	results, err := s.MultiStore.DecideAll(ctx, reqs)
	for i, req := range reqs {
		if err == nil && req.Key == s.key {
			results[i].Source, results[i].Cause = sash.FromLocal, s.cause
		}
	}
	return results, err
}

func TestADecisionComesFromTheLeastOfItsSubjectsSources(t *testing.T) {
	cause := errors.New("down")
	for key, want := range map[string]sash.Source{"a": sash.FromLocal, "b": sash.FromLocal, "c": sash.FromStore} {
		l := newLimiter(t, localFor{memstore.New(nil), key, cause}, nil, sash.PerHour(5))
		res, err := l.AllowAll(t.Context(), sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1})
		if err != nil || res.Source != want || (res.Cause == nil) != (want == sash.FromStore) {
			t.Errorf("%s: from the %v because of %v, %v", key, res.Source, res.Cause, err)
		}
	}
}
