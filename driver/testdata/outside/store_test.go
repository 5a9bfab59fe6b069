package outside

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func harness(store func(now func() time.Time) driver.Store) func(*testing.T) storetest.Harness {
	return func(*testing.T) storetest.Harness {
		clock := time.UnixMicro(1_700_000_000_000_000)
		now := func() time.Time { return clock }
		return storetest.Harness{
			Store:   store(now),
			Now:     now,
			Advance: func(d time.Duration) { clock = clock.Add(d) },
		}
	}
}

func TestStore(t *testing.T) {
	storetest.Run(t, harness(func(now func() time.Time) driver.Store { return New(now) }), sash.SlidingLog)
}

func TestDecorator(t *testing.T) {
	storetest.Run(t, harness(func(now func() time.Time) driver.Store {
		return &Counter{Passthrough: driver.Passthrough{Next: memstore.New(&memstore.Options{Now: now})}}
	}))
}

func TestADecoratorHasThePowersOfItsStore(t *testing.T) {
	over := func(store driver.Store) driver.Store { return &Counter{Passthrough: driver.Passthrough{Next: store}} }
	all, few := over(memstore.New(nil)), over(New(time.Now))
	if _, ok := driver.As[driver.Deduplicator](all); !ok {
		t.Error("over memstore it does not know IDs")
	}
	if _, ok := driver.As[driver.Deduplicator](few); ok {
		t.Error("over a store without IDs it knows them")
	}
	p, err := sash.NewPolicy(nil, sash.PerMinute(5))
	if err != nil {
		t.Fatal(err)
	}
	if !driver.CanBook(all, p) || driver.CanBook(few, p) {
		t.Error("it does not book as the store does")
	}
}

// Bookings go through every method, with their delay.
func TestADecoratorBooks(t *testing.T) {
	store := &Counter{Passthrough: driver.Passthrough{Next: memstore.New(nil)}}
	p, err := sash.NewPolicy(nil, sash.Every(1, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Key: "k", Cost: 1, Policy: p, Within: driver.MaxAhead}
	reqs := []driver.Request{req}
	var last int64
	check := func(how string, answers []driver.Answer, err error) {
		t.Helper()
		if err != nil || len(answers) != 1 || !answers[0].Allowed() || last != 0 && answers[0].At != last+p.Limits[0].Window {
			t.Fatalf("%s, after %d: %+v, %v", how, last, answers, err)
		}
		last = answers[0].At
	}
	one := func(answer driver.Answer, err error) ([]driver.Answer, error) { return []driver.Answer{answer}, err }
	answers, err := one(store.Decide(t.Context(), req))
	check("Decide", answers, err)
	answers, err = one(store.DecideOnce(t.Context(), "id", req))
	check("DecideOnce", answers, err)
	answers, err = store.DecideAll(t.Context(), reqs)
	check("DecideAll", answers, err)
	answers, err = store.DecideEach(t.Context(), reqs)
	check("DecideEach", answers, err)
}
