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

// A bookStore is memory that takes time to answer, and counts its decisions.
type bookStore struct {
	driver.Passthrough
	takes     time.Duration
	decisions atomic.Int64
}

func newBookStore() *bookStore {
	return &bookStore{Passthrough: driver.Passthrough{Next: memstore.New(nil)}}
}

func (s *bookStore) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	defer time.Sleep(s.takes)
	s.decisions.Add(1)
	return s.Passthrough.Decide(ctx, req)
}

func (s *bookStore) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	defer time.Sleep(s.takes)
	s.decisions.Add(1)
	return s.Passthrough.DecideAll(ctx, reqs)
}

func book(t *testing.T, l *sash.Limiter, key string, cost int64) *sash.Reservation {
	t.Helper()
	r, err := l.Book(t.Context(), key, cost, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBookRefusesWhatStartsTooLate(t *testing.T) {
	for within, allowed := range map[time.Duration]bool{
		10 * time.Second: true, time.Hour: true, 2 * sash.MaxAhead: true,
		10*time.Second - 1: false, 0: false, -1: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newBookStore(), &sash.Options{Prefix: "p"}, sash.Every(1, 10*time.Second))
			book(t, l, "k", 1)
			r, err := l.Book(t.Context(), "k", 1, within)
			if err != nil || r.Allowed() != allowed {
				t.Fatalf("within %v: %v, %v", within, r.Allowed(), err)
			}
			if allowed {
				return
			}
			if res := r.Result(); res.RetryAfter != 10*time.Second || res.Delay != 0 || r.Delay() != 0 {
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
		book(t, l, "a", 1)
		if _, _, err := l.BookAll(t.Context(), time.Hour, sash.Subject{Key: "b", Cost: 1, Limits: slow}); err != nil {
			t.Fatal(err)
		}
		both := []sash.Subject{{Key: "a", Cost: 1}, {Key: "b", Cost: 1, Limits: slow}}
		if res, rs, err := l.BookAll(t.Context(), time.Minute-1, both...); err != nil || res.Allowed || rs != nil || res.RetryAfter != time.Minute {
			t.Errorf("within too little: %+v, %v, %v", res, rs, err)
		}
		res, rs, err := l.BookAll(t.Context(), time.Minute, both...)
		if err != nil || !res.Allowed || res.Delay != time.Minute || rs[0].Delay() != time.Minute || rs[1].Delay() != time.Minute {
			t.Fatalf("%+v, %v", res, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := rs[1].Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if again, _, err := l.BookAll(t.Context(), time.Minute, both...); err != nil || !again.At.Equal(res.At) {
			t.Errorf("after a caller who left the next starts at %v, want %v: %v", again.At, res.At, err)
		}
		if a := book(t, l, "a", 1); a.Result().Delay != 69*time.Second { // behind the two
			t.Errorf("a call behind both starts after %v", a.Result().Delay)
		}
	})
}

func TestBookOnceFindsItsPlaceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(2, 10*time.Second))
		began := time.Now()
		book(t, l, "k", 2)
		once := func() *sash.Reservation {
			r, err := l.BookOnce(t.Context(), "job", "k", 1, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first := once()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := first.Wait(ctx); !errors.Is(err, context.Canceled) { // it keeps its place
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		again := once()
		if again.Delay() != 6*time.Second || !again.Result().At.Equal(first.Result().At) {
			t.Errorf("repeated after 4s it starts in %v, at %v; first at %v", again.Delay(), again.Result().At, first.Result().At)
		}
		if other := book(t, l, "k", 1); !other.Result().At.Equal(first.Result().At) { // so that two could be given back
			t.Fatalf("another starts at %v", other.Result().At)
		}
		if third, err := l.Book(t.Context(), "k", 1, 6*time.Second); err != nil || third.Allowed() {
			t.Errorf("a third call of two has a place: %+v, %v", third.Result(), err)
		}
		for _, r := range []*sash.Reservation{first, again, again} {
			if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if next := book(t, l, "k", 2); next.Result().At.Sub(began) != 20*time.Second {
			t.Errorf("one of two units was canceled twice, and a call of 2 starts after %v", next.Result().At.Sub(began))
		}
	})
}

// A store that cannot book, an algorithm that does not, and refused calls that are charged: each says so.
func TestBookNeedsAStoreThatBooks(t *testing.T) {
	for name, c := range map[string]struct {
		store driver.Store
		opts  *sash.Options
	}{
		"the store":       {plain{newBookStore()}, nil},
		"the algorithm":   {newBookStore(), &sash.Options{Algorithm: sash.FixedWindow}},
		"charged refused": {newBookStore(), &sash.Options{CountRefused: true}},
	} {
		l := newLimiter(t, c.store, c.opts, sash.PerMinute(1))
		_, book := l.Book(t.Context(), "k", 1, time.Hour)
		_, _, all := l.BookAll(t.Context(), time.Hour, sash.Subject{Key: "k", Cost: 1})
		_, once := l.BookOnce(t.Context(), "id", "k", 1, time.Hour)
		for call, err := range map[string]error{"Book": book, "BookAll": all, "BookOnce": once} {
			if !errors.Is(err, sash.ErrUnsupported) {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
	}
	l := newLimiter(t, apartBookStore{newBookStore()}, nil, sash.PerMinute(1))
	two := []sash.Subject{{Key: "k", Cost: 1}, {Key: "l", Cost: 1}}
	if _, _, err := l.BookAll(t.Context(), time.Hour, two...); !errors.Is(err, sash.ErrUnsupported) {
		t.Errorf("subjects in different places: %v", err)
	}
}

type apartBookStore struct{ *bookStore }

func (apartBookStore) DecideAll(context.Context, []driver.Request) ([]driver.Answer, error) {
	return nil, driver.ErrApart
}

func TestWrongBookingsAreErrors(t *testing.T) {
	l := newLimiter(t, newBookStore(), nil, sash.PerMinute(5))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		key  string
		cost int64
		want error
	}{
		"no key":                 {t.Context(), "", 1, sash.ErrInvalidKey},
		"no cost":                {t.Context(), "k", 0, sash.ErrInvalidCost},
		"a cost that never fits": {t.Context(), "k", 6, sash.ErrCostAboveLimit},
		"a caller that is gone":  {gone, "k", 1, context.Canceled},
	} {
		_, book := l.Book(c.ctx, c.key, c.cost, time.Hour)
		_, _, all := l.BookAll(c.ctx, time.Hour, sash.Subject{Key: c.key, Cost: c.cost})
		_, once := l.BookOnce(c.ctx, "id", c.key, c.cost, time.Hour)
		for call, err := range map[string]error{"Book": book, "BookAll": all, "BookOnce": once, "Wait": l.WaitN(c.ctx, c.key, c.cost)} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v, want %v", name, call, err, c.want)
			}
		}
	}
}

// The store goes on for a caller who leaves while it decides, so what it books then is given back.
func TestABookingForACallerWhoLeftIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBookStore()
		store.takes = 500 * time.Millisecond
		l := newLimiter(t, store, nil, sash.Every(1, time.Hour))
		for call, ask := range map[string]func(context.Context) error{
			"Book": func(ctx context.Context) error { _, err := l.Book(ctx, "k", 1, time.Hour); return err },
			"BookAll": func(ctx context.Context) error {
				_, _, err := l.BookAll(ctx, time.Hour, sash.Subject{Key: "k", Cost: 1})
				return err
			},
			"Wait": func(ctx context.Context) error { return l.Wait(ctx, "k") },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			began := time.Now()
			if err := ask(ctx); !errors.Is(err, context.Canceled) || time.Since(began) != 10*time.Millisecond {
				t.Errorf("%s: %v after %v", call, err, time.Since(began))
			}
			time.Sleep(time.Second)
			if n := 1 - remaining(t, l, "k"); n != 0 {
				t.Errorf("%s: %d units stay charged", call, n)
			}
		}
	})
}
