package netbench

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
	"example.com/sash/redisstore"
)

// ofSize returns the decision at a size, over one store.
type ofSize func(limiter *sash.Limiter, store *redisstore.Store, size int, keys []string) (load.Decide, error)

// tags is how many different decisions there are of a size. No two sizes share a subject.
const tags = 4000

// together measures AllowAll with its keys in one slot, and decisions of which each is of its own but that share a script.
func together(r *report.Report, data map[string]any) error {
	sizes := []int{1, 2, sash.MaxSubjects}
	figures, err := grow(r, "keys in a decision", sizes, allowAll)
	if err != nil {
		return err
	}
	data["Keys"] = sizedTable("keys in a decision", sizes, figures)
	data["KeySlopes"] = slopesOf("keys", sizes, "key", figures)

	sizes = []int{1, 2, 4, 8, driver.MaxGather}
	if figures, err = grow(r, "decisions in a script", sizes, gathered); err != nil {
		return err
	}
	for i, n := range sizes { // n decisions count as n
		for _, f := range figures[i].Used {
			for round := range f {
				f[round] /= float64(n)
			}
		}
	}
	data["Gathered"] = sizedTable("decisions in a script", sizes, figures)
	data["GatheredSlopes"] = slopesOf("decisions in a script", sizes, "", figures)
	return nil
}

// policies measures a subject with more limits.
func policies(r *report.Report, data map[string]any) error {
	sizes := []int{1, 2, 4, sash.MaxLimits}
	figures, err := grow(r, "limits of a subject", sizes, limited)
	if err != nil {
		return err
	}
	data["Limits"] = sizedTable("limits of a subject", sizes, figures)
	data["LimitSlopes"] = slopesOf("limits", sizes, "limit", figures)
	return nil
}

func sizedTable(head string, sizes []int, figures []load.Figures) report.Table {
	table := report.NewTable(head, "script µs a decision", "Redis µs a decision", "client µs a decision")
	for i, n := range sizes {
		table.Row(append([]any{n}, figuresOf(figures[i])...)...)
	}
	return table
}

// grow measures decisions of several sizes on one Redis. Each has made every one of its decisions once before.
func grow(r *report.Report, what string, sizes []int, decision ofSize) ([]load.Figures, error) {
	s, err := server.Start()
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	plain, done, err := openStore(singleRueidis, s.Addr)
	if err != nil {
		return nil, err
	}
	defer done()
	store := plain.(*redisstore.Store)
	limiter, err := sash.New(store, nil, sash.PerHour(5000))
	if err != nil {
		return nil, err
	}
	var decisions []load.Decide
	for _, n := range sizes {
		r.Say("%d %s", n, what)
		keys := make([]string, tags)
		for i := range keys {
			keys[i] = load.Key(i)
		}
		decide, err := decision(limiter, store, n, keys)
		if err != nil {
			return nil, err
		}
		decide = load.Admitting(decide)
		if _, err := (&opened{decide: decide}).spread(tags, tags); err != nil {
			return nil, err
		}
		decisions = append(decisions, decide)
	}
	return load.Alternate(r.ClientRounds, func(round int) (runs []load.Run) {
		for _, decide := range decisions {
			runs = append(runs, load.Run{Decide: decide, Keys: load.Keys(tags, 0, uint64(round)), Goroutines: many, Duration: r.Turn,
				Meters: metersOf(s)})
		}
		return runs
	})
}

// allowAll decides on n subjects at once.
func allowAll(limiter *sash.Limiter, _ *redisstore.Store, n int, keys []string) (load.Decide, error) {
	subjects := make(map[string][]sash.Subject, len(keys))
	for _, key := range keys {
		for i := range n {
			subjects[key] = append(subjects[key], sash.Subject{Key: sash.KeyTogether(key, fmt.Sprint(n), fmt.Sprint(i)), Cost: 1})
		}
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.AllowAll(ctx, subjects[key]...)
		return res.Allowed, err
	}, nil
}

// gathered makes n decisions by one script.
func gathered(limiter *sash.Limiter, store *redisstore.Store, n int, keys []string) (load.Decide, error) {
	policy := limiter.Policy()
	requests := make(map[string][]driver.Request, len(keys))
	for _, key := range keys {
		for i := range n {
			requests[key] = append(requests[key], driver.Request{Key: sash.KeyTogether(key, fmt.Sprint(n), fmt.Sprint(i)), Cost: 1, Policy: policy})
		}
	}
	return func(ctx context.Context, key string) (bool, error) {
		answers, errs := store.DecideMany(ctx, requests[key])
		for i := range answers {
			if errs[i] != nil || !answers[i].Allowed() {
				return false, errs[i]
			}
		}
		return true, nil
	}, nil
}

// limited decides by n limits.
func limited(_ *sash.Limiter, store *redisstore.Store, n int, _ []string) (load.Decide, error) {
	windows := []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}
	var limits []sash.Limit
	for i, window := range windows[len(windows)-n:] {
		limits = append(limits, sash.Every(int64(5000+i), window))
	}
	limiter, err := sash.New(store, &sash.Options{Prefix: fmt.Sprint("limits", n)}, limits...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}, nil
}
