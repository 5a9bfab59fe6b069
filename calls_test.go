package sash_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A call is one of a limiter, on a key or on two that begin with it.
type call struct {
	name string
	of   func(arguments) error
}

type arguments struct {
	*sash.Limiter
	ctx  context.Context
	key  string
	cost int64
	two  []sash.Subject
}

// calls are all that need a decision.
var calls = []call{
	{"AllowN", func(a arguments) error { return second(a.AllowN(a.ctx, a.key, a.cost)) }},
	{"WaitN", func(a arguments) error { return a.WaitN(a.ctx, a.key, a.cost) }},
	{"AllowOnce", func(a arguments) error { return second(a.AllowOnce(a.ctx, "id", a.key, a.cost)) }},
	{"AllowUpTo", func(a arguments) error { return second(a.AllowUpTo(a.ctx, a.key, a.cost)) }},
	{"Penalize", func(a arguments) error { return second(a.Penalize(a.ctx, a.key, a.cost)) }},
	{"Reward", func(a arguments) error { return second(a.Reward(a.ctx, a.key, a.cost)) }},
	{"AllowAll", func(a arguments) error { return second(a.AllowAll(a.ctx, a.two...)) }},
	{"AllowAny", func(a arguments) error { return third(a.AllowAny(a.ctx, a.two...)) }},
	{"Reserve", func(a arguments) error { return second(a.Reserve(a.ctx, a.key, a.cost, nil)) }},
	{"ReserveAll", func(a arguments) error { return third(reserveAll(a.ctx, a.Limiter, 0, a.two...)) }},
	{"ReserveAny", func(a arguments) error { return third(reserveAny(a.ctx, a.Limiter, 0, a.two...)) }},
	{"Book", func(a arguments) error {
		return second(a.Reserve(a.ctx, a.key, a.cost, &sash.ReserveOptions{WaitUpTo: time.Hour}))
	}},
	{"BookAll", func(a arguments) error { return third(reserveAll(a.ctx, a.Limiter, time.Hour, a.two...)) }},
	{"BookAny", func(a arguments) error { return third(reserveAny(a.ctx, a.Limiter, time.Hour, a.two...)) }},
	{"BookOnce", func(a arguments) error {
		return second(a.Reserve(a.ctx, a.key, a.cost, &sash.ReserveOptions{WaitUpTo: time.Hour, ID: "id"}))
	}},
}

// reserveAll reserves several subjects, and returns their reservations, or nil after a refusal.
func reserveAll(ctx context.Context, l *sash.Limiter, wait time.Duration, subjects ...sash.Subject) (sash.Result, []*sash.Reservation, error) {
	first := subjects[0]
	r, err := l.Reserve(ctx, first.Key, first.Cost, &sash.ReserveOptions{WaitUpTo: wait, Limits: first.Limits, All: subjects[1:]})
	if err != nil {
		return sash.Result{}, nil, err
	}
	if !r.Allowed() {
		return r.Result(), nil, nil
	}
	return r.Result(), r.Parts, nil
}

// reserveAny reserves one of several subjects, and returns its index.
func reserveAny(ctx context.Context, l *sash.Limiter, wait time.Duration, subjects ...sash.Subject) (int, *sash.Reservation, error) {
	first := subjects[0]
	r, err := l.Reserve(ctx, first.Key, first.Cost, &sash.ReserveOptions{WaitUpTo: wait, Limits: first.Limits, Any: subjects[1:]})
	if err != nil {
		return -1, nil, err
	}
	return r.Chosen, r, nil
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

func (c call) make(ctx context.Context, l *sash.Limiter, key string, cost int64) error {
	return c.of(arguments{l, ctx, key, cost, two(key, cost)})
}

func two(key string, cost int64) []sash.Subject {
	return []sash.Subject{{Key: key, Cost: cost}, {Key: key + "'", Cost: cost}}
}

// but returns the calls without some.
func but(names ...string) []call {
	return slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return slices.Contains(names, c.name) })
}

func TestWrongCallsNeverReachTheStore(t *testing.T) {
	hungUp := errors.New("the client hung up")
	gone, leave := context.WithCancelCause(t.Context())
	leave(hungUp)
	store := newBookStore()
	l := newLimiter(t, store, nil, sash.PerHour(100), sash.PerMinute(5))
	anyCost := but("AllowUpTo", "Penalize", "Reward") // the others have to fit as a whole
	for name, c := range map[string]struct {
		ctx   context.Context
		calls []call
		key   string
		cost  int64
		want  error
	}{
		"empty key":          {t.Context(), calls, "", 1, sash.ErrInvalidKey},
		"blank key":          {t.Context(), calls, " \t\r\n\u00a0", 1, sash.ErrInvalidKey},
		"endless key":        {t.Context(), calls, strings.Repeat("k", sash.MaxKeyLength+1), 1, sash.ErrInvalidKey},
		"no cost":            {t.Context(), calls, "k", 0, sash.ErrInvalidCost},
		"negative cost":      {t.Context(), calls, "k", -1, sash.ErrInvalidCost},
		"too much":           {t.Context(), calls[4:6], "k", sash.MaxUnits + 1, sash.ErrInvalidCost},
		"above one limit":    {t.Context(), anyCost, "k", 6, sash.ErrCostAboveLimit},
		"above all limits":   {t.Context(), anyCost, "k", 101, sash.ErrCostAboveLimit},
		"a caller that left": {gone, calls, "k", 1, context.Canceled},
	} {
		for _, call := range c.calls {
			err := call.make(c.ctx, l, c.key, c.cost)
			if !errors.Is(err, c.want) || errors.Is(err, sash.ErrUnavailable) || c.ctx == gone && !errors.Is(err, hungUp) {
				t.Errorf("%s: %s: %v, want %v", name, call.name, err, c.want)
			}
		}
	}
	if _, err := l.AllowN(t.Context(), "k", 6); !strings.Contains(err.Error(), "5/1m") {
		t.Errorf("the error does not name the limit that is too small: %v", err)
	}
	if err := l.Do(gone, "k", func(context.Context) error { panic("it ran") }); !errors.Is(err, context.Canceled) {
		t.Errorf("Do: %v", err)
	}
	if n := store.decisions.Load(); n != 0 {
		t.Errorf("the store made %d decisions", n)
	}
}

func TestWrongSubjectsAndIDs(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerMinute(10))
	a, b := sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1}
	wrong := sash.Subject{Key: "c", Cost: 1, Limits: []sash.Limit{{Units: 1}}}
	long := strings.Repeat("x", driver.MaxIDLength)
	for name, c := range map[string]struct {
		subjects []sash.Subject
		most     int // of them that a call takes
		want     error
	}{
		"none":           {nil, 0, sash.ErrInvalidLimit},
		"one twice":      {[]sash.Subject{a, b, a}, 0, sash.ErrInvalidKey},
		"a wrong limit":  {[]sash.Subject{a, wrong}, 0, sash.ErrInvalidLimit},
		"two, one free":  {[]sash.Subject{a, {Key: "b"}}, 0, sash.ErrInvalidCost},
		"five":           {credentials(5), sash.MaxAny, sash.ErrInvalidLimit},
		"endless":        {credentials(sash.MaxAny + 1), 0, sash.ErrInvalidLimit},
		"one of no cost": {[]sash.Subject{{Key: "a"}}, 0, sash.ErrInvalidCost},
	} {
		_, all := l.AllowAll(t.Context(), c.subjects...)
		var reserved []*sash.Reservation
		reserve := all
		if len(c.subjects) > 0 { // a reservation has a first
			_, reserved, reserve = reserveAll(t.Context(), l, 0, c.subjects...)
		}
		if !errors.Is(all, c.want) || !errors.Is(reserve, c.want) || reserved != nil {
			t.Errorf("%s: %v, %v; want %v", name, all, reserve, c.want)
		}
		if i, _, err := l.AllowAny(t.Context(), c.subjects...); c.most == 0 && (!errors.Is(err, c.want) || i != -1) {
			t.Errorf("any of %s: %d, %v; want %v", name, i, err, c.want)
		}
	}
	for _, id := range []string{"", long + "x"} {
		if _, err := l.AllowOnce(t.Context(), id, "k", 1); !errors.Is(err, sash.ErrInvalidID) {
			t.Errorf("an ID of %d bytes: %v", len(id), err)
		}
	}
	if res, err := l.AllowOnce(t.Context(), long, "k", 10); err != nil || !res.Allowed {
		t.Errorf("the longest ID: %+v, %v", res, err)
	}
	if _, res, err := l.AllowAny(t.Context(), credentials(sash.MaxAny)...); err != nil || !res.Allowed {
		t.Errorf("as many as there can be: %+v, %v", res, err)
	}
}

func TestReserveOptionsThatContradictEachOther(t *testing.T) {
	store := newBookStore()
	l, b := newLimiter(t, store, nil, sash.PerMinute(10)), []sash.Subject{{Key: "b", Cost: 1}}
	for name, c := range map[string]struct {
		opts sash.ReserveOptions
		want error
	}{
		"All and Any":     {sash.ReserveOptions{All: b, Any: b}, sash.ErrInvalidLimit},
		"an ID with All":  {sash.ReserveOptions{ID: "id", All: b}, sash.ErrInvalidID},
		"an ID with Any":  {sash.ReserveOptions{ID: "id", Any: b}, sash.ErrInvalidID},
		"a long ID":       {sash.ReserveOptions{ID: strings.Repeat("x", driver.MaxIDLength+1)}, sash.ErrInvalidID},
		"a negative wait": {sash.ReserveOptions{WaitUpTo: -1}, sash.ErrInvalidLimit},
	} {
		if r, err := l.Reserve(t.Context(), "a", 1, &c.opts); r != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, r, err, c.want)
		}
	}
	if n := store.decisions.Load(); n != 0 {
		t.Errorf("the store made %d decisions", n)
	}
}

// A program of golang.org/x/time/rate that sleeps for the Delay of what it reserves does not compile by chance.
func TestReservationsHaveNoDelay(t *testing.T) {
	if _, has := reflect.TypeFor[*sash.Reservation]().MethodByName("Delay"); has {
		t.Error("Reservation.Delay is that of golang.org/x/time/rate: a refusal's is zero, and sleeping for it limits nothing")
	}
}

// Where refused calls are charged, no charge is given back. The error says so, and blames no store.
func TestWhatCannotBeWhereRefusedCallsAreCharged(t *testing.T) {
	opts := &sash.Options{CountRefused: true}
	l := newLimiter(t, newBookStore(), opts, sash.PerHour(10))
	_, atOnce := sash.NewConcurrency(memstore.New(nil), opts, 1, time.Minute)
	errs := map[string]error{"NewConcurrency": atOnce}
	for _, call := range but("AllowN", "WaitN", "AllowOnce", "AllowUpTo", "Penalize", "AllowAll") {
		errs[call.name] = call.make(t.Context(), l, "k", 1)
	}
	for call, err := range errs {
		if !errors.Is(err, sash.ErrUnsupported) || !strings.Contains(err.Error(), "CountRefused") || strings.Contains(err.Error(), "this store") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// A store that cannot book, and an algorithm that does not: each says so.
func TestBookNeedsAStoreThatBooks(t *testing.T) {
	for name, l := range map[string]*sash.Limiter{
		"the store":     newLimiter(t, drivertest.Plain(newBookStore()), nil, sash.PerMinute(1)),
		"the algorithm": newLimiter(t, newBookStore(), &sash.Options{Algorithm: sash.FixedWindow}, sash.PerMinute(1)),
	} {
		for _, call := range calls[len(calls)-4:] {
			if err := call.make(t.Context(), l, "k", 1); !errors.Is(err, sash.ErrUnsupported) {
				t.Errorf("%s, %s: %v", name, call.name, err)
			}
		}
	}
	l := newLimiter(t, apartStore{memstore.New(nil)}, nil, sash.PerMinute(1))
	if _, _, err := reserveAll(t.Context(), l, time.Hour, two("k", 1)...); !errors.Is(err, sash.ErrUnsupported) {
		t.Errorf("subjects in different places: %v", err)
	}
}

// Callers who leave while the store decides would fill the limit for a whole window, though none of them does anything. They
// get their error at once, and what the store then admits is given back.
func TestWhatIsAdmittedForACallerWhoLeftIsGivenBack(t *testing.T) {
	var c *sash.Concurrency
	begin := call{"Start", func(a arguments) error { return second(c.Start(a.ctx, a.key)) }}
	for _, call := range append(but("AllowN", "AllowOnce", "AllowUpTo", "Penalize", "Reward", "AllowAll", "AllowAny", "BookOnce"), begin) {
		for want, leave := range map[error]func(context.Context) (context.Context, context.CancelFunc){
			context.DeadlineExceeded: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 10*time.Millisecond)
			},
			context.Canceled: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, stop := context.WithCancel(ctx)
				time.AfterFunc(10*time.Millisecond, stop)
				return ctx, stop
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				store := slowStore(900 * time.Millisecond)
				l := newLimiter(t, store, nil, sash.PerHour(1))
				c = newConcurrency(t, store, 1, time.Hour)
				for range 2 { // the second is refused, or booked behind the first
					ctx, stop := leave(t.Context())
					began := time.Now()
					if err := call.make(ctx, l, "k", 1); !errors.Is(err, want) || time.Since(began) != 10*time.Millisecond {
						t.Errorf("%s: %v after %v, want %v after 10ms", call.name, err, time.Since(began), want)
					}
					stop()
				}
				time.Sleep(2 * time.Second)
				if !start(t, c, "k").Allowed() {
					t.Errorf("%s: the slot is taken", call.name)
				}
				for _, s := range two("k", 1) {
					answer, err := driver.Decide(t.Context(), store.Store, driver.Request{Key: s.Key, Policy: l.Policy()})
					if err != nil || answer.Remaining() != 1 {
						t.Errorf("%s: %s is still charged, %v", call.name, s.Key, err)
					}
				}
			})
		}
	}
}

// panicStore is a store that must not be asked.
type panicStore struct{}

func (panicStore) Do(context.Context, *driver.Batch) error { panic("the store was asked") }

func (panicStore) Powers() driver.Powers { return 0 }

// must returns what gives a test the value, and ends the test if there is an error: must(sash.New(store, nil, limit))(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return value
	}
}

// check ends a test if there is an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// report fails a test if there is an error, also from another goroutine.
func report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return must(sash.New(store, opts, limits...))(t)
}

func TestDoSaysWhoIsConstrained(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, memstore.New(nil), nil, sash.Every(25, 5*time.Second), sash.PerMinute(300))
	ran := 0
	run := func(context.Context) error { ran++; return nil }
	for range 25 {
		check(t, l.Do(ctx, "x", run))
	}
	err := l.Do(ctx, "x", run)
	if ran != 25 {
		t.Errorf("the function ran %d times", ran)
	}
	var limited *sash.LimitedError
	if !errors.Is(err, sash.ErrLimited) || !errors.As(err, &limited) {
		t.Fatalf("not a refusal: %v", err)
	}
	if !strings.HasPrefix(err.Error(), "x is constrained to 25 calls per 5 seconds") {
		t.Errorf("it says %q", err)
	}
	if limited.Limit.Name != "25/5s" || limited.Result.RetryAfter <= 0 || limited.Result.RetryAfter > 5*time.Second {
		t.Errorf("the refusal is by %v, retry after %v", limited.Limit, limited.Result.RetryAfter)
	}
	for _, other := range []error{sash.ErrUnavailable, context.Canceled, sash.ErrCostAboveLimit} {
		if errors.Is(err, other) {
			t.Errorf("a refusal is also %v", other)
		}
	}
	if err := l.Do(ctx, "y", func(context.Context) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("Do hides what the function returned: %v", err)
	}
}

func TestAStoreThatFailsIsAnErrorOfItsOwn(t *testing.T) {
	down := errors.New("connection refused")
	store := storetest.NewFaulty(memstore.New(nil))
	store.Fail(down)
	for _, call := range calls {
		err := call.make(t.Context(), newLimiter(t, store, nil, sash.PerMinute(1)), "k", 1)
		if !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, down) || errors.Is(err, sash.ErrLimited) {
			t.Errorf("%s: a failing store gives %v", call.name, err)
		}
	}
	fails := func(ctx context.Context, cause error) error {
		store.Fail(cause)
		return second(newLimiter(t, store, nil, sash.PerMinute(1)).Allow(ctx, "k"))
	}
	err := fails(t.Context(), fmt.Errorf("dial: %w", context.DeadlineExceeded))
	if !errors.Is(err, sash.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connection's time-out gives %v, as if the caller had given up", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fails(ctx, ctx.Err()); !errors.Is(err, context.Canceled) || errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("a caller that gave up gets %v", err)
	}
}

func TestPrefixesKeepLimitersApart(t *testing.T) {
	store := memstore.New(nil)
	login := newLimiter(t, store, &sash.Options{Prefix: "login"}, sash.PerMinute(1))
	api := newLimiter(t, store, &sash.Options{Prefix: "api"}, sash.PerMinute(1))
	check(t, errors.Join(login.Wait(t.Context(), "k"), api.Wait(t.Context(), "k"), login.Reset(t.Context(), "k")))
	if a, b := remaining(t, login, "k"), remaining(t, api, "k"); a != 1 || b != 0 {
		t.Errorf("after a reset of the first, %d and %d remain of 1", a, b)
	}
}
