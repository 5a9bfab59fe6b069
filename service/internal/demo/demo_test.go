package demo

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

func accepted(b Boundary) map[string]int64 {
	m := make(map[string]int64)
	for _, r := range b.Results {
		m[r.Algorithm] = r.Accepted
	}
	return m
}

func TestBoundaryInVirtualTime(t *testing.T) {
	b, err := VirtualBoundary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b.Limit != "50/10s" || len(b.Results) != 6 {
		t.Fatalf("%+v", b)
	}
	want := map[string]int64{
		"sliding-log": 50, "sorted-set-log": 50, "sliding-buckets": 50, // at most 50 in any ten seconds
		"fixed-window":    100, // the counter starts again at the boundary
		"sliding-counter": 55,  // nine tenths of the first 50 still count
		"gcra":            60,  // two seconds at five a second are free again
	}
	for algorithm, n := range accepted(b) {
		if n != want[algorithm] {
			t.Errorf("%s accepted %d, want %d", algorithm, n, want[algorithm])
		}
	}
}

// It waits for a boundary of ten seconds, which is what it is about.
func TestBoundaryOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 64})
	t.Cleanup(func() { _ = client.Close() })
	clock := func(ctx context.Context) (time.Time, error) { return client.Time(ctx).Result() }
	b, err := LiveBoundary(t.Context(), goredisstore.New(client, nil), clock, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	got := accepted(b)
	for _, exact := range []string{"sliding-log", "sorted-set-log", "sliding-buckets"} {
		if got[exact] != 50 {
			t.Errorf("%s accepted %d, want 50", exact, got[exact])
		}
	}
	if got["fixed-window"] != 100 {
		t.Errorf("fixed-window accepted %d, want 100", got["fixed-window"])
	}
	for _, approximate := range []string{"sliding-counter", "gcra"} {
		if got[approximate] < 50 || got[approximate] > 65 {
			t.Errorf("%s accepted %d", approximate, got[approximate])
		}
	}
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys left behind (%v)", n, err)
	}
}

func TestWorkloadToTheSecond(t *testing.T) {
	w, err := RunWorkload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ got, want float64 }{
		"fixed: start":                 {w.Fixed.Start, 150},
		"fixed: second phase":          {w.Fixed.Phases[1].Start, 270},
		"fixed: end":                   {w.Fixed.End, 570},
		"fixed: refusals":              {float64(w.Fixed.Refusals), 90 + 30},
		"fixed: admitted":              {float64(w.Fixed.Admitted), 300},
		"fixed: who never stops":       {w.Fixed.NeverStops, 60},
		"sliding: start":               {w.Sliding.Start, 150},
		"sliding: end of the fetching": {w.Sliding.Phases[0].End, 155},
		"sliding: second phase":        {w.Sliding.Phases[1].Start, 155},
		"sliding: end":                 {w.Sliding.End, 455},
		"sliding: refusals":            {float64(w.Sliding.Refusals), 0},
		"sliding: admitted":            {float64(w.Sliding.Admitted), 300},
		"sliding: who never stops":     {w.Sliding.NeverStops, 60},
		"saved":                        {w.Saved, 115},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %v, want %v", name, tt.got, tt.want)
		}
	}
	attempts := w.Fixed.Phases[0].Attempts
	want := []Attempt{{150, 150, 60, 90, 30}, {180, 90, 60, 30, 60}, {240, 30, 30, 0, 0}}
	if len(attempts) != len(want) {
		t.Fatalf("%d attempts, want %d", len(attempts), len(want))
	}
	for i := range want {
		if attempts[i] != want[i] {
			t.Errorf("attempt %d: %+v, want %+v", i+1, attempts[i], want[i])
		}
	}
}
