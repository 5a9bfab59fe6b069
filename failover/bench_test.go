package failover_test

import (
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// What standing before a store costs, next to the store itself.
func BenchmarkDecide(b *testing.B) {
	stores := map[string]driver.Store{"bare": memstore.New(nil)}
	for name, mode := range map[string]failover.Mode{"closed": failover.Closed, "local": failover.Local} {
		store, err := failover.New(memstore.New(nil), &failover.Options{
			Modes: failover.Modes{Rules: []failover.Rule{{Mode: mode}}},
			Local: memstore.New(nil),
		})
		if err != nil {
			b.Fatal(err)
		}
		stores[name] = store
	}
	for _, name := range []string{"bare", "closed", "local"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			l := newLimiter(b, stores[name], nil, sash.PerMinute(50_000))
			for b.Loop() {
				if _, err := l.Allow(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
