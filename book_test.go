package sash_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A bookStore is memory that takes time to answer, counts decisions and questions whether a booking can be brought forward, and fails at
// one of those questions.
type bookStore struct {
	driver.Passthrough
	takes                time.Duration
	decisions, questions atomic.Int64
	fails                int64
	panics               bool // where it fails
}

func newBookStore() *bookStore {
	return &bookStore{Passthrough: driver.Passthrough{Store: memstore.New(nil)}}
}

func (s *bookStore) Do(ctx context.Context, b *driver.Batch) error {
	if op := &b.Ops[0]; op.Kind == driver.Charge && op.ID == "" && b.Mode != driver.Any {
		defer time.Sleep(s.takes)
		s.decisions.Add(1)
	} else if op.Kind == driver.Extend {
		defer time.Sleep(s.takes)
		if n := s.questions.Add(1); n == s.fails {
			_ = s.Store.Do(ctx, b)
			if s.panics {
				panic("a bug of a store")
			}
			return errLost
		}
	}
	return s.Store.Do(ctx, b)
}

func book(t *testing.T, l *sash.Limiter, key string, cost int64) *sash.Reservation {
	t.Helper()
	return must(l.Reserve(t.Context(), key, cost, &sash.ReserveOptions{WaitUpTo: time.Hour}))(t)
}

func TestBookRefusesWhatStartsTooLate(t *testing.T) {
	for within, allowed := range map[time.Duration]bool{10 * time.Second: true, 2 * sash.MaxAhead: true, 10*time.Second - 1: false, 0: false} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newBookStore(), &sash.Options{Prefix: "p"}, sash.Every(1, 10*time.Second))
			book(t, l, "k", 1)
			r, err := l.Reserve(t.Context(), "k", 1, &sash.ReserveOptions{WaitUpTo: within})
			if err != nil || r.Allowed() != allowed {
				t.Fatalf("within %v: %v, %v", within, r.Allowed(), err)
			}
			if allowed {
				return
			}
			if res := r.Result(); res.RetryAfter != 10*time.Second || res.Delay != 0 || r.StartsIn() != 0 {
				t.Errorf("within %v: a delay of %v, retry after %v", within, res.Delay, res.RetryAfter)
			}
			var limited *sash.LimitedError
			if err := r.Wait(t.Context()); !errors.As(err, &limited) || limited.Key != "k" || limited.Limit.Units != 1 {
				t.Errorf("waiting for a refusal: %v", err)
			}
		})
	}
}

// What a booking charged is given back by every way out of it, and by no other.
func TestABookingIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(*testing.T, *sash.Reservation) error
		err   error // of leaving
		kept  bool
	}{
		"Cancel": {func(t *testing.T, r *sash.Reservation) error { return r.Cancel(t.Context()) }, nil, false},
		"a deadline that is too near": {func(t *testing.T, r *sash.Reservation) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			defer func() {
				if time.Since(began) != 0 {
					t.Errorf("it took %v to fail", time.Since(began))
				}
			}()
			return r.Wait(ctx)
		}, sash.ErrLimited, false},
		"a caller who leaves": {func(t *testing.T, r *sash.Reservation) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			time.AfterFunc(time.Second, cancel)
			return r.Wait(ctx)
		}, context.Canceled, false},
		"waiting to the end": {func(t *testing.T, r *sash.Reservation) error { return r.Wait(t.Context()) }, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newBookStore(), nil, sash.Every(1, 10*time.Second))
				book(t, l, "k", 1)
				r := book(t, l, "k", 1)
				if err := c.leave(t, r); !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
				if err := r.Wait(t.Context()); (err == nil) != c.kept {
					t.Errorf("waiting again: %v", err)
				}
				if next := book(t, l, "k", 1); next.Result().At.Equal(r.Result().At) == c.kept {
					t.Errorf("the next starts at %v, and this one at %v", next.Result().At, r.Result().At)
				}
			})
		})
	}
}

func TestBookAllStartsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(1, 10*time.Second))
		slow := []sash.Limit{sash.Every(1, time.Minute)}
		both := []sash.Subject{{Key: "a", Cost: 1}, {Key: "b", Cost: 1, Limits: slow}}
		check(t, third(reserveAll(t.Context(), l, time.Hour, both...)))
		res, rs, err := reserveAll(t.Context(), l, time.Minute, both...)
		if err != nil || !res.Allowed || res.Delay != time.Minute || rs[0].StartsIn() != time.Minute || rs[1].StartsIn() != time.Minute {
			t.Fatalf("%+v, %v", res, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := rs[1].Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if again, _, err := reserveAll(t.Context(), l, time.Minute, both...); err != nil || !again.At.Equal(res.At) {
			t.Errorf("after a caller who left the next starts at %v, want %v: %v", again.At, res.At, err)
		}
		if a := book(t, l, "a", 1); a.Result().Delay != 69*time.Second { // behind the two
			t.Errorf("a call behind both starts after %v", a.Result().Delay)
		}
	})
}

// Without a time to wait it reserves, under algorithms that do not book, too.
func TestBookOnceReservesWhereNobodyWaits(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), &sash.Options{Algorithm: sash.FixedWindow}, sash.PerDay(10))
	for range 2 {
		if r, err := l.Reserve(t.Context(), "k", 4, &sash.ReserveOptions{ID: "job"}); err != nil || !r.Allowed() || remaining(t, l, "k") != 6 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if _, err := l.Reserve(t.Context(), "k", 4, &sash.ReserveOptions{WaitUpTo: time.Hour, ID: "other"}); !errors.Is(err, sash.ErrUnsupported) {
		t.Error(err)
	}
}

func TestBookOnceFindsItsPlaceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(2, 10*time.Second))
		began := time.Now()
		book(t, l, "k", 2)
		once := func() *sash.Reservation {
			return must(l.Reserve(t.Context(), "k", 1, &sash.ReserveOptions{WaitUpTo: time.Hour, ID: "job"}))(t)
		}
		first := once()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := first.Wait(ctx); !errors.Is(err, context.Canceled) { // it keeps its place
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		again := once()
		if again.StartsIn() != 6*time.Second || !again.Result().At.Equal(first.Result().At) {
			t.Errorf("repeated after 4s it starts in %v, at %v; first at %v", again.StartsIn(), again.Result().At, first.Result().At)
		}
		if other := book(t, l, "k", 1); !other.Result().At.Equal(first.Result().At) { // so that two could be given back
			t.Fatalf("another starts at %v", other.Result().At)
		}
		if third, err := l.Reserve(t.Context(), "k", 1, &sash.ReserveOptions{WaitUpTo: 6 * time.Second}); err != nil || third.Allowed() {
			t.Errorf("a third call of two has a place: %+v, %v", third.Result(), err)
		}
		for _, r := range []*sash.Reservation{first, again, again} {
			report(t, r.Cancel(t.Context()))
		}
		if next := book(t, l, "k", 2); next.Result().At.Sub(began) != 20*time.Second {
			t.Errorf("one of two units was canceled twice, and a call of 2 starts after %v", next.Result().At.Sub(began))
		}
	})
}

// After a reset the store knows no place any more, so nobody asks it to move one.
func TestAResetMovesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBookStore()
		l := newLimiter(t, store, nil, sash.Every(1, 10*time.Second))
		book(t, l, "k", 1)
		r := book(t, l, "k", 1)
		time.AfterFunc(time.Second, func() { report(t, l.Reset(t.Context(), "k")) })
		if err := r.Wait(t.Context()); err != nil || store.questions.Load() > 0 {
			t.Errorf("%d questions, %v", store.questions.Load(), err)
		}
	})
}
