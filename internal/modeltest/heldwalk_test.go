package modeltest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
	"example.com/sash/redisstore"
)

// The script answers as the arithmetic in Go does, and keeps the same, over random calls, fetches and clocks.
func TestLeasesAreThoseOfTheArithmetic(t *testing.T) {
	server := redistest.Start(t)
	for _, most := range []int64{1, 2, int64(threshold.Leases)} {
		t.Run(fmt.Sprintf("%d leases", most), func(t *testing.T) {
			store, clock, scripts := virtual(t, server.Addr(), nil)
			scripts.thresholds = threshold.Scripts.But(threshold.Table{"MAX_LEASES": most})
			before := threshold.Leases
			threshold.Leases = int(most)
			t.Cleanup(func() { threshold.Leases = before })
			check(heldWalks(store, clock, scripts, fmt.Sprint("held/", most), 150))
		})
	}
}

// heldWalks makes walks of so many steps.
func heldWalks(store *redisstore.Store, clock *judge.Clock, scripts *scripter, prefix string, steps int) error {
	for seed := range uint64(60 * *times) {
		w := newHeldWalk(store, clock, scripts, fmt.Sprint(prefix, "/", seed), seed)
		for range steps {
			if err := w.step(); err != nil {
				return fmt.Errorf("walk %d: %w\nafter\n\t%s", seed, err, strings.Join(w.trace[max(0, len(w.trace)-25):], "\n\t"))
			}
		}
	}
	return nil
}

// A heldWalk makes the same random calls of a script and of the arithmetic.
type heldWalk struct {
	*rand.Rand
	store   *redisstore.Store
	clock   *judge.Clock
	scripts *scripter
	key     string
	model   window.Leases
	longest int64
	way     int64
	fetches []int64 // when those under way began
	began   []int64 // of all
	trace   []string

	// Of the last look at the expiry, which runs by the server's own clock: what it was, when, and by how much that clock has
	// gone on more than the virtual one since the expiry was set.
	lived, at int64
	read      time.Time
	late      int64
}

func newHeldWalk(store *redisstore.Store, clock *judge.Clock, scripts *scripter, key string, seed uint64) *heldWalk {
	w := &heldWalk{Rand: rand.New(rand.NewPCG(seed, 16)), store: store, clock: clock, scripts: scripts, key: key, read: time.Now()}
	w.longest = []int64{60_000, 2_000_000, 20_000_000}[w.IntN(3)]
	w.way = w.Int64N(w.longest / 4)
	return w
}

func (w *heldWalk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d: "+format, append([]any{w.clock.Now().UnixMicro()}, args...)...))
}

func (w *heldWalk) step() (err error) {
	defer caught(&err)
	w.advance()
	now := w.clock.Now().UnixMicro()
	lives := must(w.lives())
	if lives < 0 { // the key is gone
		w.model = window.Leases{}
	}
	switch n := w.IntN(20); {
	case n > 4 && len(w.fetches) == 0, n > 9:
		err = w.spend(now)
	case n > 1:
		err = w.bring(now)
	case n > 0 || w.IntN(4) > 0:
		err = w.giveBack()
	default:
		w.note("forget")
		w.model.Forget()
		err = w.store.Forget(context.Background(), w.key)
	}
	if err == nil {
		_, err = w.lives()
	}
	return err
}

var readExpiry = redisstore.NewScript("read_expiry.lua", "return struct.pack('>i8', redis.call('PTTL', KEYS[1]))")

// lives returns how long the key lives, in milliseconds, or a negative number if it is gone. What matters must not be gone.
func (w *heldWalk) lives() (int64, error) {
	reply := must(w.scripts.Run(context.Background(), readExpiry, []string{"sash:held:" + w.key}, ""))
	lives := int64(binary.BigEndian.Uint64([]byte(reply)))
	now, read := w.clock.Now().UnixMicro(), time.Now()
	took := read.Sub(w.read).Microseconds()
	if lives < w.lived {
		took += w.late - max(0, now-w.at)
	}
	w.lived, w.at, w.read, w.late = lives, now, read, max(0, took)
	if matters := w.model.Expires() - now; max(0, lives+1)*1000+w.late < matters {
		return lives, fmt.Errorf("the key lives for %d ms, and what it holds matters for %d µs", lives, matters)
	}
	return lives, nil
}

// advance moves the clock, mostly by what a call takes.
func (w *heldWalk) advance() {
	var d int64
	switch n := w.IntN(100); {
	case n < 50:
		d = w.Int64N(w.longest/100 + 1)
	case n < 75: // to the edge of something
		edges, now := instants(reflect.ValueOf(w.model)), w.clock.Now().UnixMicro()
		if len(edges) == 0 {
			break
		}
		edge := edges[w.IntN(len(edges))] + []int64{0, 0, -2 * w.way, w.longest}[w.IntN(4)]
		if edge > now && edge < now+time.Hour.Microseconds() {
			d = edge - now + w.Int64N(3) - 1
		}
	case n < 90:
		d = w.Int64N(w.longest/2 + 1)
	case n < 95:
		d = w.Int64N(5 * w.longest)
	case n < 98:
		d = -w.Int64N(w.longest / 4)
	case n < 99:
		d = -w.Int64N(3 * w.longest)
	}
	w.clock.Advance(time.Duration(d) * time.Microsecond)
}

func (w *heldWalk) spend(now int64) error {
	s := window.Spending{Key: w.key, Cost: 1 + w.Int64N(1+w.Int64N(6)), Longest: w.longest, Way: w.way, Again: w.IntN(4) == 0}
	if w.IntN(50) == 0 {
		s.Cost = driver.MaxUnits - w.Int64N(3)
	}
	if w.IntN(10) == 0 {
		w.way = w.Int64N(w.longest/4 + 1)
	}
	return w.ask(now, s)
}

// ask makes a call of both.
func (w *heldWalk) ask(now int64, s window.Spending) error {
	got, err := w.store.Spend(context.Background(), s)
	var want window.Held
	w.model.Take(now, &s, &want)
	w.note("%+v gets %+v", s, got)
	if err != nil || got != want {
		return fmt.Errorf("%+v gets %+v, %v; by the arithmetic %+v", s, got, err, want)
	}
	if got.Fetch > 0 {
		w.fetches, w.began = append(w.fetches, got.At), append(w.began, got.At)
	}
	return nil
}

func (w *heldWalk) bring(now int64) error {
	e := window.Fetch{Key: w.key, Longest: w.longest, Rest: w.Int64N(1000) - 1, Reply: fmt.Sprintf("%*d", w.IntN(80), w.IntN(1000))}
	if n := len(w.fetches); n > 0 {
		i := n - 1
		if w.IntN(5) == 0 {
			i = w.IntN(n)
		}
		e.Began, w.fetches = w.fetches[i], append(w.fetches[:i:i], w.fetches[i+1:]...)
	} else if w.IntN(3) > 0 {
		e.Began = now - w.Int64N(1000)
	}
	switch n := w.IntN(10); {
	case e.Began == 0 && (n > 3 || len(instants(reflect.ValueOf(w.model))) == 0) || n > 8:
		e.Refused, e.RefusedCost = 1+w.Int64N(1+w.Int64N(5*w.longest)), 1+w.Int64N(5)
	case n > 7:
		e.Failed = 1 + w.Int64N(1+w.Int64N(3*w.longest))
	case n > 6: // it brings nothing
	default:
		e.Units, e.Delay = 1+w.Int64N(40), max(0, w.Int64N(2*w.longest)-w.longest)
		if w.IntN(20) == 0 {
			e.Units = driver.MaxUnits
		}
	}
	return w.brings(now, e)
}

// brings lets both bring the same.
func (w *heldWalk) brings(now int64, e window.Fetch) error {
	got, err := w.store.Bring(context.Background(), e)
	want := w.model.Bring(now, &e)
	w.note("%+v is kept: %v", e, got)
	if err != nil || got != want {
		return fmt.Errorf("%+v is kept: %v, %v; by the arithmetic %v", e, got, err, want)
	}
	return nil
}

// crowd brings more leases than a key keeps, and goes on while they end.
func (w *heldWalk) crowd() {
	for i := range 20 {
		w.clock.Advance(time.Duration(w.longest/6) * time.Microsecond)
		now := w.clock.Now().UnixMicro()
		w.fetches = nil
		check(w.ask(now, window.Spending{Key: w.key, Cost: driver.MaxUnits / 2, Longest: w.longest, Way: w.way}))
		if len(w.fetches) == 0 {
			continue
		}
		delay := int64(9-3*(i%3)) * w.longest / 10
		check(w.brings(now, window.Fetch{Key: w.key, Longest: w.longest, Began: now, Units: int64(1 + i), Delay: delay}))
		check(w.ask(now, window.Spending{Key: w.key, Cost: 1, Longest: w.longest, Way: w.way, Again: true}))
		must(w.lives())
	}
}

func (w *heldWalk) giveBack() error {
	if len(w.began) == 0 {
		return nil
	}
	began, keep := w.began[max(0, len(w.began)-1-w.IntN(5))], max(0, w.Int64N(30)-10)
	got, err := w.store.Return(context.Background(), w.key, began, keep)
	want := w.model.Return(began, keep)
	w.note("%d above %d are returned of %d", got, keep, began)
	if err != nil || got != want {
		return fmt.Errorf("%d units above %d are returned of the lease of %d, %v; by the arithmetic %d", got, keep, began, err, want)
	}
	return nil
}

// instants returns all that may be an instant of what the arithmetic keeps.
func instants(v reflect.Value) (all []int64) {
	switch v.Kind() {
	case reflect.Int64:
		if v.Int() > 1e15 {
			all = append(all, v.Int())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			all = append(all, instants(v.Field(i))...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, instants(v.Index(i))...)
		}
	}
	return all
}

// held: leases are those of the arithmetic; what another process of Redis wrote is not spent; and keys live as long as what
// they hold matters.
func (b *bench) held() error {
	if b.algorithm != driver.SlidingLog {
		return nil
	}
	newHeldWalk(b.store, b.clock, b.scripts, "crowd", 1).crowd()
	check(b.heldElsewhere())
	return heldWalks(b.store, b.clock, b.scripts, "held", 120)
}

// heldElsewhere spends leases whose value says that another process wrote it, during a fetch and after it.
func (b *bench) heldElsewhere() error {
	ctx := context.Background()
	const longest = 1_000_000
	for _, after := range []bool{false, true} {
		key := fmt.Sprint("elsewhere", after)
		s := window.Spending{Key: key, Cost: 1, Longest: longest}
		var fetch window.Held
		for range 2 {
			fetch = must(b.store.Spend(ctx, s))
		}
		if after {
			check(b.broughtTo(key, fetch.At, longest, true))
		}
		check(b.scripts.client.SetRange(ctx, "sash:held:"+key, 45, "another one.").Err())
		if !after {
			check(b.broughtTo(key, fetch.At, longest, false))
			continue
		}
		if n, err := b.store.Return(ctx, key, fetch.At, 0); n != 0 || err != nil {
			return fmt.Errorf("%d units of another process are returned, %v", n, err)
		}
		if h, err := b.store.Spend(ctx, s); err != nil || !h.Alone {
			return fmt.Errorf("a call that meets what another process wrote gets %+v, %v", h, err)
		}
	}
	return nil
}

func (b *bench) broughtTo(key string, began, longest int64, want bool) error {
	kept, err := b.store.Bring(context.Background(), window.Fetch{Key: key, Longest: longest, Began: began, Units: 9})
	if err != nil || kept != want {
		return fmt.Errorf("the lease of a fetch of %d is kept: %v, %v, want %v", began, kept, err, want)
	}
	return nil
}
