package storetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// While decisions are refused, every kind of call is, and nothing is charged.
func TestAStoreThatRefuses(t *testing.T) {
	ctx, store := t.Context(), storetest.NewFaulty(memstore.New(nil))
	limiter, err := sash.New(store, nil, sash.PerHour(5), sash.PerDay(9))
	if err != nil {
		t.Fatal(err)
	}
	slots, err := sash.NewConcurrency(store, nil, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	store.Refuse(30 * time.Second)
	pair := []sash.Subject{{Key: "k", Cost: 1}, {Key: "l", Cost: 1}}
	for name, call := range map[string]func() (sash.Result, error){
		"Allow":     func() (sash.Result, error) { return limiter.Allow(ctx, "k") },
		"AllowAll":  func() (sash.Result, error) { return limiter.AllowAll(ctx, pair...) },
		"AllowAny":  func() (sash.Result, error) { _, res, err := limiter.AllowAny(ctx, pair...); return res, err },
		"AllowOnce": func() (sash.Result, error) { return limiter.AllowOnce(ctx, "id", "k", 1) },
		"AllowUpTo": func() (sash.Result, error) { return limiter.AllowUpTo(ctx, "k", 3) },
		"Book": func() (sash.Result, error) {
			r, err := limiter.Reserve(ctx, "k", 1, &sash.ReserveOptions{WaitUpTo: time.Hour})
			return r.Result(), err
		},
		"Start": func() (sash.Result, error) {
			slot, err := slots.Start(ctx, "k")
			return slot.Result(), err
		},
	} {
		res, err := call()
		by, refused := res.RefusedBy()
		if err != nil || !refused || res.RetryAfter != 30*time.Second || by.Limit.Name == "" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if res, err := limiter.Peek(ctx, "k"); err != nil || res.Remaining != 5 {
		t.Errorf("%d are left after refusals, %v", res.Remaining, err)
	}
	store.Fail(nil)
	if res, err := limiter.Allow(ctx, "k"); err != nil || !res.Allowed {
		t.Errorf("afterwards: %+v, %v", res, err)
	}
}

func TestMemstore(t *testing.T) { conforms(t, func(s *memstore.Store) driver.Store { return s }) }

// A store without a power has no cases of it.
func TestAStoreThatOnlyDecides(t *testing.T) {
	conforms(t, func(s *memstore.Store) driver.Store { return drivertest.Plain(s) }, sash.SlidingLog, sash.GCRA)
}

func conforms(t *testing.T, store func(*memstore.Store) driver.Store, algorithms ...sash.Algorithm) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		return storetest.Harness{
			Store:   store(memstore.New(&memstore.Options{Now: clock.Now})),
			Now:     clock.Now,
			Advance: clock.Advance,
		}
	}, algorithms...)
}

// A program and its tests, which docs/testing.md shows.

// A mailer sends at most three messages an hour to each address.
type mailer struct {
	limiter *sash.Limiter
	sent    int
}

func newMailer(t *testing.T, store driver.Store) *mailer {
	t.Helper()
	limiter, err := sash.New(store, &sash.Options{Prefix: "mail"}, sash.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	return &mailer{limiter: limiter}
}

// send sends a message now, or returns an error.
func (m *mailer) send(ctx context.Context, to string) error {
	return m.limiter.Do(ctx, sash.Key("to", to), func(context.Context) error { m.sent++; return nil })
}

// sendLater waits until it may send.
func (m *mailer) sendLater(ctx context.Context, to string) error {
	return m.limiter.WaitDo(ctx, sash.Key("to", to), func(context.Context) error { m.sent++; return nil })
}

func TestAFourthMessageFitsAnHourAfterTheFirst(t *testing.T) {
	now := time.Date(2026, time.November, 23, 9, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	m := newMailer(t, store)
	for range 3 {
		if err := m.send(t.Context(), "ann@example.com"); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Hour - time.Microsecond)
	if err := m.send(t.Context(), "ann@example.com"); !errors.Is(err, sash.ErrLimited) {
		t.Errorf("a fourth message within the hour: %v, want a refusal", err)
	}
	now = now.Add(time.Microsecond)
	if err := m.send(t.Context(), "ann@example.com"); err != nil {
		t.Errorf("an hour after the first: %v", err)
	}
}

func TestAFourthMessageWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMailer(t, memstore.New(nil)) // within the bubble, whose clock it reads
		began := time.Now()
		for range 4 {
			if err := m.sendLater(t.Context(), "ann@example.com"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("the fourth message is sent after %v, want an hour", took)
		}
	})
}

func TestAMailerWhoseStoreDoesNotAdmit(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*storetest.Faulty)
		want  error
	}{
		"refuses": {func(s *storetest.Faulty) { s.Refuse(time.Minute) }, sash.ErrLimited},
		"fails":   {func(s *storetest.Faulty) { s.Fail(errors.New("connection refused")) }, sash.ErrUnavailable},
		"hangs":   {func(s *storetest.Faulty) { s.Hang(nil) }, context.DeadlineExceeded},
		"is slow": {func(s *storetest.Faulty) { s.Slow(100 * time.Millisecond) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(memstore.New(nil))
				c.fault(store)
				m := newMailer(t, store)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := m.send(ctx, "ann@example.com"); !errors.Is(err, c.want) || (m.sent > 0) != (err == nil) {
					t.Errorf("sent %d, %v, want %v", m.sent, err, c.want)
				}
			})
		})
	}
}
