package decide

import (
	"testing"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

const benchRules = "domain: d\ndescriptors:\n- {key: user, limits: [1000000000/1h, 2000000000/1d], algorithm: fixed-window}\n- {key: plan, limits: [1000000000/1h], algorithm: fixed-window}\n- {key: full, limits: [1/10d], algorithm: fixed-window}\n"

func benchDecider(b *testing.B) *Decider {
	b.Helper()
	return deciderOn(b, benchRules, memstore.New(nil))
}

func BenchmarkDecideOne(b *testing.B) {
	d := benchDecider(b)
	entries := []config.Entry{{Key: "user", Value: "ann"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := one(b.Context(), d, One("d", entries, nil)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecideRefused(b *testing.B) {
	d := benchDecider(b)
	entries := []config.Entry{{Key: "full", Value: "ann"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := one(b.Context(), d, One("d", entries, nil)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPartsOne(b *testing.B) {
	d := benchDecider(b)
	entries := []config.Entry{{Key: "user", Value: "ann"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decide(b.Context(), Request{Domain: "d", Parts: []Part{{Entries: entries, Cost: 1}}, Lenient: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPartsTwo(b *testing.B) {
	d := benchDecider(b)
	user, plan := []config.Entry{{Key: "user", Value: "ann"}}, []config.Entry{{Key: "plan", Value: "free"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decide(b.Context(), Request{Domain: "d", Parts: []Part{{Entries: user, Cost: 1}, {Entries: plan, Cost: 1}}, Lenient: true}); err != nil {
			b.Fatal(err)
		}
	}
}
