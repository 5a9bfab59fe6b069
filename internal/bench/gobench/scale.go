package gobench

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/memstore"
)

//go:embed scale.md
var scalePage string

// Scale measures memstore as keys grow from a thousand to the configured number, and adds it to the report.
func Scale(r *report.Report) error {
	table := report.NewTable("keys", "calls a key", "heap, MiB", "bytes a key", "ns a first decision", "ns a later decision")
	for _, m := range []struct {
		calls int
		bytes float64 // per key, as documented
	}{{1, 400}, {10, 700}} {
		for n := 1000; n <= r.Keys; n *= 10 {
			r.Say("%d keys in memory, %d calls each", n, m.calls)
			got, err := hold(n, m.calls)
			if err != nil {
				return err
			}
			table.Row(n, m.calls, fmt.Sprintf("%.1f", got.heap/(1<<20)), fmt.Sprintf("%.0f", got.heap/float64(n)),
				fmt.Sprintf("%.0f", got.first), fmt.Sprintf("%.0f", got.later))
			if n == r.Keys {
				r.AtMost(m.bytes, got.heap/float64(n), fmt.Sprintf("memstore, bytes a key at %d keys of %d calls", n, m.calls))
			}
		}
	}
	return r.Add(scalePage, map[string]any{"Table": table})
}

type held struct {
	heap         float64 // bytes
	first, later float64 // nanoseconds
}

func hold(n, calls int) (got held, err error) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = load.Key(i)
	}
	before := heap()
	store := memstore.New(&memstore.Options{MaxKeys: n + n/8})
	limiter, err := sash.New(store, nil, sash.PerHour(1000))
	if err != nil {
		return held{}, err
	}
	ctx := context.Background()
	for round := range calls {
		began := time.Now()
		for _, key := range keys {
			if _, err := limiter.Allow(ctx, key); err != nil {
				return held{}, err
			}
		}
		if round == 0 {
			got.first = float64(time.Since(began).Nanoseconds()) / float64(n)
		}
	}
	got.heap = heap() - before
	const later = 300_000
	began := time.Now()
	for range later {
		if _, err := limiter.Allow(ctx, keys[rand.IntN(n)]); err != nil {
			return held{}, err
		}
	}
	got.later = float64(time.Since(began).Nanoseconds()) / later
	if stats := store.Stats(); stats.Keys != n || stats.Evicted != 0 {
		return held{}, fmt.Errorf("gobench: memstore holds %d of %d keys, and evicted %d", stats.Keys, n, stats.Evicted)
	}
	return got, nil
}

// heap returns the bytes in use after a collection.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
