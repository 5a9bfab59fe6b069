package faulttest

import (
	"context"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/stack"
)

// Bookings reach half a second ahead, so queues are about ten windows of the short limit long.
const within = 500 * time.Millisecond

// startBooking starts a load of callers that book, so many of each store as given, and one that does not. Some give their
// bookings back before they start.
func startBooking(t testing.TB, limiter *sash.Limiter, patience time.Duration) *load {
	l := &load{limiter: limiter, patience: patience, quit: make(chan struct{})}
	t.Cleanup(func() { l.stop() })
	for c := range callers {
		l.group.Go(func() {
			var mine []call
			for i := 0; !l.quits(); i++ {
				if c == 0 {
					mine = append(mine, l.ask(subject, 1))
				} else {
					mine = append(mine, l.book(subject, 1+int64(i%5), i%8 == 0))
				}
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls = append(l.calls, mine...)
		})
	}
	return l
}

// book books, and perhaps gives the booking back.
func (l *load) book(key string, cost int64, leaves bool) call {
	ctx, cancel := context.WithTimeout(context.Background(), 3*l.patience)
	defer cancel()
	c := call{key: key, cost: cost, start: time.Now(), books: true}
	r, err := l.limiter.Book(ctx, key, cost, within)
	c.end = time.Now()
	if c.err = err; err != nil {
		l.failed.Add(1)
		return c
	}
	c.Result = r.Result()
	switch {
	case !c.Allowed:
		l.refused.Add(1)
		select {
		case <-l.quit:
		case <-time.After(5 * time.Millisecond):
		}
	case leaves:
		_ = r.Cancel(ctx) // in a fault it may stay charged
		c.Allowed = false // it does not start
	default:
		l.admitted.Add(1)
	}
	return c
}

// inOrder reports bookings of the store that start before another that was answered before they were asked for. It returns
// how far ahead the farthest started.
func (h history) inOrder(t testing.TB) (farthest time.Duration) {
	return h.inOrderOf(t, driver.FromStore)
}

func (h history) inOrderOf(t testing.TB, source driver.Source) (farthest time.Duration) {
	t.Helper()
	booked := h.admitted().where(func(c call) bool { return c.books && c.Source == source })
	answered := slices.Clone(booked)
	slices.SortFunc(booked, func(a, b call) int { return a.start.Compare(b.start) })
	slices.SortFunc(answered, func(a, b call) int { return a.end.Compare(b.end) })
	var last call // of those answered, the one that starts last
	for _, c := range booked {
		for len(answered) > 0 && answered[0].end.Before(c.start) {
			if answered[0].At.After(last.At) {
				last = answered[0]
			}
			answered = answered[1:]
		}
		if c.At.Before(last.At) {
			t.Errorf("asked for at %v, a booking starts at %v, before one that was answered at %v and starts at %v", c.start, c.At, last.end, last.At)
			return 0
		}
		farthest = max(farthest, c.Delay)
	}
	if farthest == 0 {
		t.Error("no call was booked ahead: this test shows nothing")
	}
	return farthest
}

// queues is what bookings are held to in these tests.
var queues = []sash.Limit{short, sash.Every(200, 500*time.Millisecond)}

// A primary is killed while callers are booked ahead, and starts again without what it held.
func TestBookingsOnAKilledServer(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		l := limiter(t, stack.GroupCommit(a.open(t, to(server.Addr(), hurried))), queues...)
		load := startBooking(t, l, hurried)
		more(t, "admissions before the fault", &load.admitted, 300)
		server.Stop()
		killed := time.Now()
		more(t, "failures while the server is down", &load.failed, 20)
		server.Restart()
		more(t, "admissions after the fault", &load.admitted, 300)
		all := load.stop()

		before := all.where(func(c call) bool { return c.start.Before(killed) })
		after := all.where(func(c call) bool { return !c.start.Before(killed) })
		before.keepsTo(t, 1, queues...)
		after.keepsTo(t, 1, queues...)
		all.keepsTo(t, 2, queues...)
		before.inOrder(t)
		all.log(t, "the farthest booking after the fault is %v ahead; worst %v: %d of %d",
			after.inOrder(t), short.Window, all.worst(short.Window), short.Units)
	})
}

// A server hangs while callers are booked ahead, and goes on: it books what it was sent, for callers who have left, and
// they hold no place for longer than that takes.
func TestBookingsOnAPausedServer(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		l := limiter(t, stack.GroupCommit(a.open(t, to(server.Addr(), hurried))), queues...)
		load := startBooking(t, l, hurried)
		for range 2 {
			more(t, "admissions before the fault", &load.admitted, 200)
			server.Pause()
			time.Sleep(2 * hurried)
			server.Resume()
		}
		more(t, "admissions after the fault", &load.admitted, 200)
		all := load.stop()

		all.keepsTo(t, 1, queues...)
		all.log(t, "the farthest booking is %v ahead; worst %v: %d of %d", all.inOrder(t), short.Window, all.worst(short.Window), short.Units)
	})
}

// While a server hangs, mode local books over the share of this process. The store keeps to its limits, the process to its
// share, and each to its order.
func TestBookingsBehindFailover(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		store := guard(t, stack.GroupCommit(a.open(t, to(server.Addr(), time.Second))))
		l := limiter(t, store, shared...)
		load := &load{limiter: l, patience: time.Second, quit: make(chan struct{})}
		t.Cleanup(func() { load.stop() })
		for range callers {
			load.group.Go(func() {
				var mine []call
				for i := 0; !load.quits(); i++ {
					mine = append(mine, load.book(subject, 3, i%8 == 0)) // a cost of mode local
				}
				load.mu.Lock()
				defer load.mu.Unlock()
				load.calls = append(load.calls, mine...)
			})
		}
		more(t, "admissions before the fault", &load.admitted, 100)
		server.Pause()
		await(t, "the breaker opens", func() bool { return store.State() != failover.Up })
		more(t, "admissions in the fault", &load.admitted, 100)
		server.Resume()
		await(t, "the breaker closes", func() bool { return store.State() == failover.Up })
		more(t, "admissions after the fault", &load.admitted, 100)
		all := load.stop()

		from := func(source driver.Source) history {
			return all.where(func(c call) bool { return c.err != nil || c.Source == source })
		}
		from(driver.FromStore).keepsTo(t, 1, shared...)
		from(driver.FromLocal).keepsTo(t, 1, share...)
		if n := len(all.failed()); n > 0 {
			t.Errorf("%d calls failed, such as %+v", n, all.failed()[0])
		}
		await(t, "what was booked locally is written when it starts", func() bool {
			stats := store.Stats()
			return stats.Backlog == 0 && stats.InFlight == 0 && stats.Written > 0
		})
		if err := store.Close(t.Context()); err != nil {
			t.Error(err)
		}
		all.log(t, "%d booked by the store, the farthest %v ahead, %d locally, the farthest %v ahead; %+v", len(from(driver.FromStore).admitted()),
			all.inOrder(t), len(from(driver.FromLocal).admitted()), all.inOrderOf(t, driver.FromLocal), store.Stats())
	})
}
