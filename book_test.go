package sash_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A bookStore books by the definition, one limit a subject, and counts its decisions.
type bookStore struct {
	takes time.Duration // an answer

	mu        sync.Mutex
	charges   map[string][]charge // by time
	known     map[string]int64    // when the call of an ID starts
	decisions int
	most      int   // bookings that lie ahead; 0 is any number
	fails     error // of every call
}

type charge struct{ at, units int64 }

func newBookStore() *bookStore {
	return &bookStore{charges: map[string][]charge{}, known: map[string]int64{}}
}

func (s *bookStore) Books(p *driver.Policy) bool { return p.Algorithm == driver.SlidingLog }

// used returns the units in the window that ends at t.
func (s *bookStore) used(key string, t, window int64) (n int64) {
	for _, c := range slices.Backward(s.charges[key]) {
		if c.at <= t-window {
			break
		}
		if c.at <= t {
			n += c.units
		}
	}
	return n
}

// earliest returns the first instant from t on that is behind all charges and has room.
func (s *bookStore) earliest(req driver.Request, t int64) int64 {
	l, all := req.Policy.Limits[0], s.charges[req.Key]
	if len(all) > 0 {
		t = max(t, all[len(all)-1].at)
	}
	for _, c := range all {
		if c.at+l.Length() > t && s.used(req.Key, t, l.Length())+req.Cost > l.Units {
			t = max(t, c.at+l.Length())
		}
	}
	return t
}

func (s *bookStore) Decide(_ context.Context, req driver.Request) (driver.Answer, error) {
	answers, err := s.DecideAll(nil, []driver.Request{req})
	if err != nil {
		return driver.Answer{}, err
	}
	return answers[0], nil
}

func (s *bookStore) DecideAll(_ context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	defer time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decisions++
	if s.fails != nil {
		return nil, s.fails
	}
	now, at := time.Now().UnixMicro(), int64(0)
	for _, req := range reqs {
		at = max(at, s.earliest(req, now))
	}
	ahead := 0
	for _, c := range s.charges[reqs[0].Key] {
		if c.at > now {
			ahead++
		}
	}
	var answers []driver.Answer
	refused := uint64(0)
	if at-now > reqs[0].Within || at > now && s.most > 0 && ahead >= s.most {
		refused = 1
	}
	for _, req := range reqs {
		left := req.Policy.Limits[0].Units - s.used(req.Key, at, req.Policy.Limits[0].Length()) - req.Cost
		status := []driver.Status{{Remaining: max(0, left)}}
		if refused != 0 {
			status[0].Retry = at - now
			answers = append(answers, driver.NewAnswer(now, refused, status))
			continue
		}
		if req.Cost > 0 {
			s.charges[req.Key] = append(s.charges[req.Key], charge{at, req.Cost})
		}
		answers = append(answers, driver.NewAnswer(at, 0, status))
		answers[len(answers)-1].Delay = at - now
	}
	return answers, nil
}

func (s *bookStore) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	if at, ok := s.known[id]; ok {
		a := driver.NewAnswer(at, 0, []driver.Status{{}})
		a.Delay = max(0, at-time.Now().UnixMicro())
		return a, nil
	}
	a, err := s.Decide(ctx, req)
	if err == nil && a.Allowed() {
		s.known[id] = a.At
	}
	return a, err
}

func (s *bookStore) Settle(_ context.Context, set driver.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return s.fails
	}
	if set.ID != "" {
		if _, again := s.known[set.ID]; again {
			return nil
		}
		s.known[set.ID] = 0
	}
	all := s.charges[set.Request.Key]
	for i := range all {
		if all[i].at == set.At && all[i].units >= set.Request.Cost {
			all[i].units += set.Units - set.Request.Cost
			break
		}
	}
	s.charges[set.Request.Key] = slices.DeleteFunc(all, func(c charge) bool { return c.units == 0 })
	return nil
}

func book(t *testing.T, l *sash.Limiter, key string, cost int64) *sash.Reservation {
	t.Helper()
	r, err := l.Book(t.Context(), key, cost, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBookReturnsWhenTheCallStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newBookStore(), nil, sash.Every(2, 10*time.Second))
		began := time.Now()
		for i, want := range []time.Duration{0, 0, 10 * time.Second, 10 * time.Second, 20 * time.Second} {
			r := book(t, l, "k", 1)
			if res := r.Result(); !r.Allowed() || res.Delay != want || r.Delay() != want || !res.At.Equal(began.Add(want)) {
				t.Errorf("call %d: a delay of %v and %v, at %v; want %v", i, res.Delay, r.Delay(), res.At.Sub(began), want)
			}
		}
		r := book(t, l, "k", 1)
		time.Sleep(15 * time.Second)
		if r.Delay() != 5*time.Second || r.Result().Delay != 20*time.Second {
			t.Errorf("15s later a delay of 20s is one of %v", r.Delay())
		}
		if err := r.Wait(t.Context()); err != nil || time.Since(began) != 20*time.Second || r.Delay() != 0 {
			t.Errorf("the call starts after %v, want 20s: %v", time.Since(began), err)
		}
	})
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
		used  int64 // of 1
	}{
		"Cancel": {func(t *testing.T, r *sash.Reservation) error { return r.Cancel(t.Context()) }, nil, 0},
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
		}, sash.ErrLimited, 0},
		"a caller who leaves": {func(t *testing.T, r *sash.Reservation) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			time.AfterFunc(time.Second, cancel)
			return r.Wait(ctx)
		}, context.Canceled, 0},
		"waiting to the end": {func(t *testing.T, r *sash.Reservation) error { return r.Wait(t.Context()) }, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newBookStore()
				l := newLimiter(t, store, nil, sash.Every(1, 10*time.Second))
				book(t, l, "k", 1)
				r := book(t, l, "k", 1)
				at := r.Result().At.UnixMicro()
				if err := c.leave(t, r); !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
				if used := store.used("k", at, 1); used != c.used {
					t.Errorf("%d units are charged at its start, want %d", used, c.used)
				}
				if err := r.Wait(t.Context()); (err == nil) != (c.used > 0) {
					t.Errorf("waiting again: %v", err)
				}
			})
		})
	}
}

func TestBookAllStartsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBookStore()
		l := newLimiter(t, store, nil, sash.Every(1, 10*time.Second))
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
		at := res.At.UnixMicro()
		if a, b := store.used("a", at, 1), store.used("b", at, 1); a != 0 || b != 0 {
			t.Errorf("%d and %d units stay charged after a caller who left", a, b)
		}
	})
}

func TestBookOnceFindsItsPlaceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBookStore()
		l := newLimiter(t, store, nil, sash.Every(1, 10*time.Second))
		book(t, l, "k", 1)
		once := func() *sash.Reservation {
			r, err := l.BookOnce(t.Context(), "job", "k", 1, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first := once()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := first.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(4 * time.Second)
		again := once()
		if again.Delay() != 6*time.Second || !again.Result().At.Equal(first.Result().At) {
			t.Errorf("repeated after 4s it starts in %v, at %v; first at %v", again.Delay(), again.Result().At, first.Result().At)
		}
		other := book(t, l, "k", 1)
		at := other.Result().At.UnixMicro()
		store.charges["k"][1].units++ // so that two could be given back
		for _, r := range []*sash.Reservation{first, again, again} {
			if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if used := store.used("k", again.Result().At.UnixMicro(), 1); used != 1 || store.used("k", at, 1) != 1 {
			t.Errorf("two repetitions that were canceled left %d of 2 units", used)
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
			store.mu.Lock()
			if n := len(store.charges["k"]); n != 0 {
				t.Errorf("%s: %d charges are left", call, n)
			}
			store.mu.Unlock()
		}
	})
}
