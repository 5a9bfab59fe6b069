package degrade

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/redisclient"
)

// scriptCalls returns how many scripts a server has run.
func scriptCalls(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	stats, err := server.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`cmdstat_(?:eval|evalsha):calls=(\d+)`).FindAllStringSubmatch(stats.(string), -1) {
		calls, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		n += calls
	}
	return n
}

// Callers that wait through the whole chain are booked in order, many in one round trip.
func TestWaitersAreBookedTogetherInOrder(t *testing.T) {
	const waiters = 150
	server := redistest.Start(t)
	client, err := redisclient.New("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	g, err := New(client.Detached(nil), Options{Budget: 10 * time.Second, Instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	limit := sash.Every(10, 20*time.Millisecond)
	l, err := sash.New(g.Store, nil, limit)
	if err != nil {
		t.Fatal(err)
	}
	if !driver.CanBook(g.Store, l.Policy()) {
		t.Fatal("the chain does not book")
	}
	if _, err := l.Allow(t.Context(), "to load the scripts"); err != nil {
		t.Fatal(err)
	}
	if r, err := l.Book(t.Context(), "to load the scripts", 1, time.Second); err != nil || !r.Allowed() {
		t.Fatal(r, err)
	}

	for _, c := range []struct {
		name      string
		apart     time.Duration // between two waiters
		trips     int           // the most that are needed
		reordered float64       // the most of all pairs that this machine may reorder
	}{
		{"together", 0, 15, 1},
		{"one after the other", 200 * time.Microsecond, waiters, 0.02},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := c.name
			type turn struct{ asked, booked, starts time.Time }
			var turns [waiters]turn
			before := scriptCalls(t, server)
			var wg sync.WaitGroup
			for i := range waiters {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					turns[i].asked = time.Now()
					r, err := l.Book(ctx, key, 1, time.Minute)
					if err != nil || !r.Allowed() {
						t.Errorf("waiter %d: %v", i, err)
						return
					}
					turns[i].booked, turns[i].starts = time.Now(), r.Result().At
					if err := r.Wait(ctx); err != nil {
						t.Errorf("waiter %d: %v", i, err)
					}
				})
				time.Sleep(c.apart)
			}
			wg.Wait()
			trips := scriptCalls(t, server) - before

			var admitted []judge.Call
			inverted := 0
			for _, a := range turns {
				admitted = append(admitted, judge.Call{At: a.starts, Cost: 1})
				for _, b := range turns {
					if a.asked.Before(b.asked) && b.starts.Before(a.starts) {
						inverted++
						if a.booked.Before(b.asked) {
							t.Errorf("booked at %v for %v, and another asked at %v and starts at %v", a.booked, a.starts, b.asked, b.starts)
						}
					}
				}
			}
			if err := judge.CheckHistory([]sash.Limit{limit}, admitted); err != nil {
				t.Error(err)
			}
			if share := float64(inverted) / (waiters * (waiters - 1) / 2); share > c.reordered {
				t.Errorf("%d pairs are not in order, %.1f %% of all", inverted, 100*share)
			}
			if trips > c.trips {
				t.Errorf("%d round trips for %d admissions, at most %d", trips, waiters, c.trips)
			}
			t.Logf("%d round trips for %d admissions, %d pairs not in the order in which they asked", trips, waiters, inverted)
		})
	}
}
