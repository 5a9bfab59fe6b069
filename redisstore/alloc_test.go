package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

// A server answers at once that there is room.
type server struct{}

var room = strings.Repeat("\x00", 8) + "\x00\x06\x0a\x24\x18\x1e\x40\x00" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x00\x01", 4)

func (server) Run(context.Context, *redisstore.Script, []string, string) (string, error) {
	return room, nil
}

func (server) Cluster() bool { return false }

// What is sent has to be allocated: the key's name, the list of keys and the argument.
func TestADecisionAllocatesWhatItSends(t *testing.T) {
	for name, opts := range map[string]*sash.Options{
		"log":     nil,
		"buckets": {Algorithm: sash.SlidingBuckets, Resolution: 10 * time.Millisecond},
	} {
		l, err := sash.New(redisstore.New(server{}, nil), opts, sash.PerMinute(10))
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if res, err := l.Allow(t.Context(), "user:42"); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
		}); n > 3 {
			t.Errorf("%s: %v allocations a decision, want 3", name, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	l, err := sash.New(redisstore.New(server{}, nil), nil, sash.PerMinute(10))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = l.Allow(b.Context(), "user:42")
	}
}

// A restless server asks for other boundaries of the calendar each time.
type restless struct{ server }

func (restless) Run(context.Context, *redisstore.Script, []string, string) (string, error) {
	return strings.Repeat("\xff", 8) + strings.Repeat("\x00", 16), nil
}

// A call that finds no boundaries is rejected by itself: the error takes the store from no other call.
func TestACallWithoutBoundariesIsRejectedAlone(t *testing.T) {
	store := redisstore.New(restless{}, nil)
	policy, err := sash.NewPolicy(nil, sash.PerCalendar(10, sash.CalendarHour, nil))
	if err != nil {
		t.Fatal(err)
	}
	plain := driver.Request{Key: "k", Cost: 1, Policy: policy}
	booking, look := plain, plain
	booking.Within, look.Cost = time.Hour.Microseconds(), 0
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"a call":    func() error { _, err := store.Decide(ctx, plain); return err },
		"a look":    func() error { _, err := store.Decide(ctx, look); return err },
		"a booking": func() error { _, err := store.Decide(ctx, booking); return err },
		"an ID":     func() error { _, err := store.DecideOnce(ctx, "id", booking); return err },
		"a batch":   func() error { _, err := store.DecideEach(ctx, []driver.Request{plain, plain}); return err },
		"subjects": func() error {
			_, err := store.DecideAll(ctx, []driver.Request{plain, {Key: "l", Cost: 1, Policy: policy}})
			return err
		},
		"a choice": func() error {
			_, _, err := store.DecideAny(ctx, []driver.Request{plain, {Key: "l", Cost: 1, Policy: policy}})
			return err
		},
		"a reward": func() error { _, err := store.Reward(ctx, plain); return err },
	} {
		if err := call(); !errors.Is(err, driver.ErrRejected) || redisstore.Misconfigured(err) || !strings.Contains(err.Error(), "repeat the call") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
