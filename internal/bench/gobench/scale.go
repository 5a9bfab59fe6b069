package gobench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/report"
	"example.com/sash/memstore"
)

// Stated memory of a key with one charge, and with ten, in bytes.
const (
	statedOnce = 400
	statedTen  = 700
)

// Scale measures memstore as keys grow, up to a million, adds it to the document, and returns the targets.
func Scale(progress io.Writer, most int, doc *report.Document) ([]report.Target, error) {
	table := &report.Table{Head: []string{"keys", "calls a key", "heap, MiB", "bytes a key", "ns a first decision", "ns a later decision"}}
	var targets []report.Target
	for _, calls := range []int{1, 10} {
		for n := 1000; n <= most; n *= 10 {
			fmt.Fprintf(progress, "%s scale: memstore, %d keys, %d calls each\n", time.Now().Format(time.TimeOnly), n, calls)
			got, err := hold(n, calls)
			if err != nil {
				return nil, err
			}
			table.Row(n, calls, fmt.Sprintf("%.1f", got.heap/(1<<20)), fmt.Sprintf("%.0f", got.heap/float64(n)),
				fmt.Sprintf("%.0f", got.first), fmt.Sprintf("%.0f", got.later))
			if n == most {
				stated := float64(statedOnce)
				if calls > 1 {
					stated = statedTen
				}
				targets = append(targets, report.Target{
					Name:     fmt.Sprintf("memstore, bytes a key at %d keys of %d calls", n, calls),
					Want:     stated,
					Measured: got.heap / float64(n),
				})
			}
		}
	}
	doc.Section("Keys in memory", `
One goroutine. The heap is what it grew by, after a collection, without the keys' own bytes, which the caller holds here. The first decision of a key makes it;
later ones are on keys at random, so with many keys most of them are not in the processor's cache.`)
	doc.Table(table)
	return targets, nil
}

type held struct {
	heap         float64 // bytes
	first, later float64 // nanoseconds
}

func hold(n, calls int) (held, error) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("client:%07d", i)
	}
	before := heap()
	store := memstore.New(&memstore.Options{MaxKeys: n + n/8})
	limiter, err := sash.New(store, nil, sash.PerHour(1000))
	if err != nil {
		return held{}, err
	}
	ctx := context.Background()
	var got held
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
		return held{}, fmt.Errorf("memstore holds %d of %d keys, and evicted %d", stats.Keys, n, stats.Evicted)
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
