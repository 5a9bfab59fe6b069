package degrade

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
)

// After a rule has changed its home, nobody spends units there that the other one has charged.
func TestLeasesOfAnotherHomeHaveOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		eu, us := island{Store: memstore.New(nil)}, island{Store: memstore.New(nil)}
		g, err := New(redisstore.New(&scripts{}, nil), Options{Log: log, Homes: map[string]*Home{
			"eu": NewHome("far", time.Second, eu, log), "us": NewHome("farther", time.Second, us, log),
		}})
		if err != nil {
			t.Fatal(err)
		}
		holder := memstore.New(nil)
		for _, home := range g.places.homes {
			home.holder.(*region).next = holder
		}
		limits := make(map[string]*sash.Limiter)
		for name := range g.places.homes {
			store, err := g.Place(config.Place{Global: true, Home: name, Lease: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if limits[name], err = sash.New(store, nil, sash.PerMinute(60_000)); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			if _, err := limits["eu"].Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		leased := g.homes["eu"].Stats().Spent
		res, err := limits["us"].Allow(t.Context(), "k")
		if err != nil || leased == 0 || res.Source == sash.FromLease || g.homes["us"].Stats().Spent > 0 {
			t.Errorf("eu has leased %d; the first call of us: %+v, %v", leased, res, err)
		}
		synctest.Wait()
		g.Close()
	})
}
