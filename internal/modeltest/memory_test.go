package modeltest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/window"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// A server that is out of memory refuses and answers peeks. A call that would charge, and a settlement, fail and change nothing.
func TestServerOutOfMemory(t *testing.T) {
	l := startLive(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			full := l.limiter(t, a, sash.Every(3, time.Hour))
			for range 3 {
				must(full.Allow(t.Context(), "full"))
			}
			l.Must(t, "CONFIG", "SET", "maxmemory", "1")
			if res, err := full.Allow(t.Context(), "full"); err != nil || res.Allowed || res.RetryAfter <= 0 {
				t.Errorf("a refusal: allowed %v, %v", res.Allowed, err)
			}
			if res, err := full.Peek(t.Context(), "full"); err != nil || res.Remaining != 0 {
				t.Errorf("a peek: %d left, %v", res.Remaining, err)
			}
			l.Must(t, "CONFIG", "SET", "maxmemory", "0")

			// Every size of a growing log. GCRA gives nothing back within these windows.
			limiter := l.limiter(t, a, sash.Every(20_000, 30*24*time.Hour), sash.Every(20_000, 60*24*time.Hour))
			key := l.key(t, "k", a)
			for i := range 100 {
				l.outOfMemory(t, key, func() error { _, err := limiter.Allow(t.Context(), "k"); return err })
				if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Remaining != int64(20_000-1-i) {
					t.Fatalf("call %d, with memory again: %d left, %v", i, res.Remaining, err)
				}
			}
			for _, actual := range []int64{0, 1, 2, 3, 4, 6, 7, 8, 9, 10} {
				r := must(limiter.Reserve(t.Context(), "k", 5, nil))
				settle := func() error { return r.Settle(t.Context(), actual) }
				l.outOfMemory(t, key, settle)
				check(settle())
			}
			if res, err := limiter.Peek(t.Context(), "k"); err != nil || res.Remaining != 20_000-100-50 {
				t.Errorf("%d units are left after charges of 150 (%v)", res.Remaining, err)
			}
		})
	}
}

// outOfMemory expects that a call fails while the server has no memory, and changes nothing.
func (l *live) outOfMemory(t *testing.T, key string, call func() error) {
	t.Helper()
	before := l.state(t, key)
	l.Must(t, "CONFIG", "SET", "maxmemory", "1")
	err := call()
	l.Must(t, "CONFIG", "SET", "maxmemory", "0")
	if !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("a call on a server that is out of memory: %v", err)
	}
	if after := l.state(t, key); after != before {
		t.Fatalf("it failed and changed the key from %+v to %+v", before, after)
	}
}

// live is a real server, with the real scripts on the server's own time.
type live struct {
	*redistest.Server
	client *redis.Client
	store  *redisstore.Store
}

func startLive(t testing.TB, args ...string) *live {
	server := redistest.Start(t, args...)
	client := newClient(t, server.Addr())
	return &live{server, client, goredisstore.New(client, nil)}
}

func options(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = 7 * time.Millisecond // does not divide an hour
	}
	return opts
}

// key returns the name of a subject's Redis key.
func (l *live) key(t testing.TB, name string, a sash.Algorithm) string {
	t.Helper()
	return l.store.Key(name, newPolicy(t, options(a), sash.PerHour(1)))
}

func (l *live) limiter(t testing.TB, a sash.Algorithm, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return newLimiter(t, l.store, options(a), limits...)
}

// state returns what a server shows of a key, and how much it has written.
func (l *live) state(t testing.TB, key string) string {
	t.Helper()
	dump, err := l.client.Dump(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return fmt.Sprintf("%q, changes %s", dump, l.Info(t, "persistence", "rdb_changes_since_last_save"))
}

// At every fill the key of a log under two limits takes at most twice its entries and 100 bytes, and while they are few
// no more than a sorted set of a short member for each call.
func TestMemoryFollowsTheCalls(t *testing.T) {
	l := startLive(t)
	usage := func(key string) int64 {
		return must(l.client.MemoryUsage(t.Context(), key, 0).Result())
	}
	limiter := l.limiter(t, sash.SlidingLog, sash.Every(100_000, 24*time.Hour), sash.Every(100_000, time.Hour))
	log, set := l.key(t, "k", sash.SlidingLog), "sash:set3:k"
	for n := int64(1); n <= 6000; n++ {
		must(limiter.Allow(t.Context(), "k"))
		bytes := usage(log)
		if most := 2*12*n + 100; bytes > most {
			t.Fatalf("%d calls take %d bytes, more than %d", n, bytes, most)
		}
		if n <= 100 {
			now := time.Now().UnixMicro()
			l.Must(t, "ZADD", set, fmt.Sprint(now), fmt.Sprintf("%x:%d", now, n))
			l.Must(t, "PEXPIRE", set, "3600000") // as every such script does; some servers keep it with the key
			if other := usage(set); bytes > other {
				t.Errorf("%d calls take %d bytes, and in a sorted set %d", n, bytes, other)
			}
		}
	}
}

// Under limits of the calendar a log holds a count of each period, as long as no limit slides: however many calls there are, and
// however many periods have ended. What is given back is taken from the count, and a call with an ID is made once.
func TestACalendarLimitIsACount(t *testing.T) {
	server := redistest.Start(t)
	stored, clock, scripts := virtual(t, server.Addr(), nil)
	clock.Advance(time.Minute) // not just before midnight
	memory := memstore.New(&memstore.Options{Now: clock.Now})
	bytes := map[driver.Store]func(*driver.Policy) int64{
		stored: func(p *driver.Policy) int64 { return scripts.client.StrLen(t.Context(), stored.Key("k", p)).Val() },
		memory: func(*driver.Policy) int64 { return memory.Stats().Bytes },
	}
	for _, period := range []sash.Period{sash.CalendarHour, sash.CalendarDay, sash.CalendarMonth} {
		policy := newPolicy(t, nil, sash.PerCalendar(1e9, period, nil))
		req := driver.Request{Key: "k", Policy: policy, Cost: 3, MaySettle: true}
		for store, size := range bytes {
			calls := drivertest.Of(store)
			decide := func(req driver.Request) driver.Answer {
				t.Helper()
				answer, err := calls.Decide(t.Context(), req)
				if err != nil || !answer.Allowed() {
					t.Fatalf("%v: %+v, %v", period, answer, err)
				}
				return answer
			}
			first := decide(req)
			one := size(policy)
			for range 1000 {
				clock.Advance(time.Microsecond)
				decide(req)
			}
			if size(policy) != one {
				t.Errorf("%T, %v: a call takes %d bytes, and a thousand more %d", store, period, one, size(policy))
			}
			set := driver.Settlement{Request: req, At: first.At, Units: 1, ID: "first"}
			for range 2 {
				check(calls.Settle(t.Context(), set))
				must(calls.Once(t.Context(), "once", req))
			}
			if got := decide(driver.Request{Key: "k", Policy: policy}); got.Remaining() != 1e9-3*1002+2 {
				t.Errorf("%T, %v: %d remain", store, period, got.Remaining())
			}
			slides := newPolicy(t, nil, sash.Every(4000, time.Second))
			look := driver.Request{Key: "k", Policy: slides}
			if got := decide(look); got.Statuses()[0].Remaining != 4000-3*1002+2 {
				t.Errorf("%T, %v: a second sees %d units of %d", store, period, 4000-got.Statuses()[0].Remaining, 3*1002-2)
			}
			decide(driver.Request{Key: "k", Policy: slides, Cost: 3}) // from now on each charge has its time
			clock.Advance(2 * time.Second)
			decide(req)
			if got := decide(look); got.Statuses()[0].Remaining != 4000-3 {
				t.Errorf("%T, %v: a second sees what was charged before it: %d are left", store, period, got.Statuses()[0].Remaining)
			}
			check(calls.Forget(t.Context(), "k", policy))
			for range 20 {
				decide(req)
				clock.Advance(time.Duration(policy.Limits[0].Length()) * time.Microsecond / 2)
			}
			if size(policy) > one+2*16 {
				t.Errorf("%T, %v: twenty periods take %d bytes, and one %d", store, period, size(policy), one)
			}
			check(calls.Forget(t.Context(), "k", policy))
		}
	}
}

// A log that has grown becomes small again when its entries have left.
func TestAnEmptyLogShrinks(t *testing.T) {
	server := redistest.Start(t)
	store, clock, scripts := virtual(t, server.Addr(), nil)
	req := driver.Request{Key: "k", Cost: 1, Policy: newPolicy(t, nil, sash.Every(5000, time.Minute))}
	size := func() int64 { return scripts.client.StrLen(t.Context(), store.Key(req.Key, req.Policy)).Val() }
	for range 3000 {
		clock.Advance(time.Millisecond)
		must(drivertest.Of(store).Decide(t.Context(), req))
	}
	if before := size(); before < 3000*12 {
		t.Fatalf("3000 entries take %d bytes", before)
	}
	clock.Advance(time.Minute - 10*time.Millisecond)
	got, err := drivertest.Of(store).Decide(t.Context(), req)
	if err != nil || got.Remaining() != 5000-11 || size() > 1000 {
		t.Errorf("with the last 10 of them the key takes %d bytes, and %d units remain (%v)", size(), got.Remaining(), err)
	}
}

// A spender counts the units that are spent of leases, on servers that hold them for an hour.
type spender struct {
	testing.TB
	brought, spent int64
}

const leaseHour = int64(time.Hour / time.Microsecond)

// ask asks a server for units, and returns the last answer. Unless any answer will do, all have to be spent.
func (s *spender) ask(store *redisstore.Store, units int, whole bool) (h window.Held) {
	s.Helper()
	for i := range units {
		var err error
		h, err = store.Spend(s.Context(), window.Spending{Key: "k", Cost: 1, Longest: leaseHour, Way: 1000})
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
func (s *spender) bring(store *redisstore.Store, fetch window.Held, units int64) bool {
	s.Helper()
	kept, err := store.Bring(s.Context(), window.Fetch{Key: "k", Longest: leaseHour, Began: fetch.At, Units: units})
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
			if h := s.ask(store, 1, true); h.Fetch > 0 && s.brought < 200 {
				s.bring(store, h, 10)
			}
		}
	}
	if s.spent > s.brought {
		s.Errorf("%d units were spent, and %d were brought", s.spent, s.brought)
	}
}

// A server that starts again with a snapshot has leases as they were before units of them were spent. It spends none of
// them, and keeps no lease whose fetch began before.
func TestAServerThatComesBackOlderSpendsNothingTwice(t *testing.T) {
	for _, saved := range []string{"before the lease is spent", "half spent", "during a fetch", "never"} {
		t.Run(saved, func(t *testing.T) {
			l := startLive(t)
			s := &spender{TB: t}
			save := func(now string) {
				if now == saved {
					l.Must(t, "SAVE")
				}
			}
			fetch := s.ask(l.store, 2, true) // the second caller has to fetch
			save("during a fetch")
			if saved != "during a fetch" {
				if !s.bring(l.store, fetch, 100) {
					t.Fatal("the lease is not kept")
				}
				save("before the lease is spent")
				s.ask(l.store, 30, false)
				save("half spent")
				s.ask(l.store, 50, false)
			}
			l.Restart()
			if saved == "during a fetch" {
				if s.bring(l.store, fetch, 100) {
					t.Error("a lease is kept whose fetch began before the restart")
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

// A replica that takes the primary's place has leases as the primary last sent them. It spends none of
// them, and neither spends what the other brings, while a primary that was cut off goes on answering.
func TestAReplicaThatIsPromotedSpendsNothingTwice(t *testing.T) {
	l := startLive(t)
	replica := redistest.StartReplica(t, l.Addr())
	client := newClient(t, replica.Addr())
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
	replica.Must(t, "REPLICAOF", "NO", "ONE")
	s.ask(l.store, 50, false) // the replica does not get these
	if h := s.ask(promoted, 1, true); h.Spent {
		t.Errorf("the replica spends a unit of the primary's lease: %+v", h)
	}
	s.over(promoted, l.store)
	if s.spent < 100 {
		t.Errorf("only %d units were spent", s.spent)
	}
}
