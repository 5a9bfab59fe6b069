package modeltest

import (
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// A spender counts the units that are spent of leases, on servers that hold them for an hour.
type spender struct {
	testing.TB
	brought, spent int64
}

const leaseHour = int64(time.Hour / time.Microsecond)

// ask asks a server for units, and returns the last answer. Unless any answer will do, all have to be spent.
func (s *spender) ask(store *redisstore.Store, units int, whole bool) (h driver.Held) {
	s.Helper()
	for i := range units {
		var err error
		h, err = store.Spend(s.Context(), driver.Spending{Key: "k", Cost: 1, Longest: leaseHour, Way: 1000})
		if err != nil || !whole && !h.Spent {
			s.Fatalf("unit %d of %d: %+v, %v", i+1, units, h, err)
		}
		if h.Spent {
			s.spent++
		}
	}
	return h
}

// bring brings a lease. It reports whether it is kept.
func (s *spender) bring(store *redisstore.Store, errand driver.Held, units int64) bool {
	s.Helper()
	kept, err := store.Bring(s.Context(), driver.Errand{Key: "k", Longest: leaseHour, Began: errand.At, Units: units})
	if err != nil {
		s.Fatal(err)
	}
	s.brought += units
	return kept
}

// over goes on spending for a while, with new leases of 10 units, and fails if more is spent than was brought.
func (s *spender) over(stores ...*redisstore.Store) {
	s.Helper()
	for range 300 {
		for _, store := range stores {
			if h := s.ask(store, 1, true); h.Errand > 0 && s.brought < 200 {
				s.bring(store, h, 10)
			}
		}
	}
	if s.spent > s.brought {
		s.Errorf("%d units were spent, and %d were brought", s.spent, s.brought)
	}
}

// A server that starts again with a snapshot has leases as they were before units of them were spent. It spends none of
// them, and keeps no lease whose errand began before.
func TestAServerThatComesBackOlderSpendsNothingTwice(t *testing.T) {
	for _, saved := range []string{"before the lease is spent", "half spent", "during an errand", "never"} {
		t.Run(saved, func(t *testing.T) {
			l := startLive(t)
			s := &spender{TB: t}
			save := func(now string) {
				if now == saved {
					l.Must(t, "SAVE")
				}
			}
			errand := s.ask(l.store, 2, true) // the second caller is sent on an errand
			save("during an errand")
			if saved != "during an errand" {
				if !s.bring(l.store, errand, 100) {
					t.Fatal("the lease is not kept")
				}
				save("before the lease is spent")
				s.ask(l.store, 30, false)
				save("half spent")
				s.ask(l.store, 50, false)
			}
			l.Restart()
			if saved == "during an errand" {
				if s.bring(l.store, errand, 100) {
					t.Error("a lease is kept whose errand began before the restart")
				}
			}
			if saved != "never" && l.client.Exists(t.Context(), "sash:held:k").Val() != 1 {
				t.Fatal("the server came back without the leases: the test shows nothing")
			}
			before := s.spent
			if s.ask(l.store, 3, true); s.spent > before {
				t.Errorf("%d units were spent of a lease from before the restart", s.spent-before)
			}
			s.over(l.store)
		})
	}
}

// A replica that takes the primary's place has leases as they were when it last heard of the primary. It spends none of
// them, and neither spends what the other brings, while a primary that was cut off goes on answering.
func TestAReplicaThatIsPromotedSpendsNothingTwice(t *testing.T) {
	l := startLive(t)
	replica := redistest.StartReplica(t, l.Addr())
	client := newClient(replica.Addr())
	t.Cleanup(func() { client.Close() })
	promoted := goredisstore.New(client, nil)
	s := &spender{TB: t}
	s.bring(l.store, s.ask(l.store, 2, true), 100)
	s.ask(l.store, 30, false)
	l.Must(t, "SET", "follows", "x") // WAIT waits for what its own connection wrote
	if n := l.Must(t, "WAIT", "1", "5000"); n != int64(1) {
		t.Fatalf("%v replicas follow", n)
	}
	has := func(server *redistest.Server) string {
		value, _ := server.Must(t, "GET", "sash:held:k").(string)
		return value
	}
	if has(l.Server) != has(replica) {
		t.Fatal("the replica has not what the primary has")
	}
	replica.Promote(t)
	s.ask(l.store, 50, false) // the replica does not hear of it
	if h := s.ask(promoted, 1, true); h.Spent {
		t.Errorf("the replica spends a unit of the primary's lease: %+v", h)
	}
	s.over(promoted, l.store)
	if s.spent < 100 {
		t.Errorf("only %d units were spent", s.spent)
	}
}
