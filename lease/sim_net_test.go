package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
	"example.com/sash/memstore"
)

// A simClock is the clock of a place: hours off, and faster or slower than the home's by parts in a million.
type simClock struct {
	start  time.Time
	offset time.Duration
	rate   int64
}

func (c *simClock) now() time.Time {
	passed := time.Since(c.start)
	return c.start.Add(c.offset + passed + passed*time.Duration(c.rate)/1_000_000)
}

// A site is a place with a store: the home or a region.
type site struct {
	clock simClock
	store atomic.Pointer[memstore.Store]
	down  atomic.Bool // refuses connections
}

func newSite(clock simClock) *site {
	s := &site{clock: clock}
	s.restart()
	return s
}

// restart loses the state.
func (s *site) restart() { s.store.Store(memstore.New(&memstore.Options{Now: s.clock.now})) }

// A weather is how a simulated way is.
type weather uint8

const (
	fine     weather = iota
	slow             // up to six times as long
	lossy            // requests and answers get lost
	cut              // all of them
	mute             // all requests get lost
	deaf             // all answers get lost
	weathers         // how many there are
)

// A way connects processes with a site.
type way struct {
	id      uint64
	to      *site
	oneWay  time.Duration
	weather atomic.Int32
}

// A process is what calls a limiter. What it sends while it is dead does not leave it, and no answer reaches it.
type process struct {
	s       *simulation
	id      uint64
	region  int
	near    *way // to the store of its region
	far     *way // to the home
	heeds   bool // its clients heed contexts
	timeout time.Duration
	pool    chan struct{} // holds one for each connection to the home that a call has
	dead    atomic.Bool

	mu    sync.Mutex
	asked int           // calls of its callers; guarded by mu, as those below
	sent  int           // calls home
	took  time.Duration // the last call home that decided, with its wait for a connection
	calls busy          // calls home that decide or reset
	backs busy          // settlements
}

// A busy is how many calls are under way, and the most of them at once.
type busy struct{ now, most int }

var errTimeout = errors.New("i/o timeout")

// luck returns random numbers of an instant, a call and a way: whatever else runs at that instant, they are the same.
func (p *process) luck(ctx context.Context, w *way) *rand.Rand {
	call, _ := ctx.Value(callKey{}).(uint64)
	at := uint64(time.Since(p.s.start))
	return rand.New(rand.NewPCG(p.s.seed^at<<20, p.id<<40^w.id<<32^call))
}

// send has f done at the other end of a way, at most once, and returns nil when the answer is there.
func (p *process) send(ctx context.Context, w *way, f func(*memstore.Store)) error {
	luck := p.luck(ctx, w)
	draw := func(weather weather) time.Duration {
		longest := int64(w.oneWay / 4)
		if weather == slow {
			longest = int64(5 * w.oneWay)
		}
		return w.oneWay + time.Duration(luck.Int64N(longest)) + 1
	}
	now := weather(w.weather.Load())
	there, back, chance := draw(now), draw(now), luck.IntN(100)
	if p.dead.Load() || w.to.down.Load() {
		return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	arrive := func() bool {
		if now == cut || now == mute || now == lossy && chance < 30 || w.to.down.Load() {
			return false
		}
		f(w.to.store.Load())
		return true
	}
	ended := ctx.Done()
	if !p.heeds {
		ended = nil
	}
	timeout := time.NewTimer(p.timeout)
	defer timeout.Stop()
	if w == p.far {
		select {
		case p.pool <- struct{}{}:
			defer func() { <-p.pool }()
		case <-ended:
			return ctx.Err()
		case <-timeout.C:
			return errTimeout
		}
	}
	began := time.Now()
	on := time.NewTimer(there)
	defer on.Stop()
	select {
	case <-on.C:
	case <-ended:
		time.AfterFunc(there-time.Since(began), func() { arrive() })
		return ctx.Err()
	case <-timeout.C:
		time.AfterFunc(there-time.Since(began), func() { arrive() })
		return errTimeout
	}
	var answered <-chan time.Time
	if arrive() {
		if now = weather(w.weather.Load()); now != cut && now != deaf && (now != lossy || chance > 60) {
			on.Reset(back)
			answered = on.C
		}
	}
	select {
	case <-answered:
		if p.dead.Load() {
			return errTimeout
		}
		return nil
	case <-ended:
		return ctx.Err()
	case <-timeout.C:
		return errTimeout
	}
}

// A simHome is a process's client of the home.
type simHome struct{ *process }

// call sends something home and counts it.
func (h simHome) call(ctx context.Context, of *busy, f func(*memstore.Store)) error {
	h.mu.Lock()
	h.sent++
	of.now++
	of.most = max(of.most, of.now)
	h.mu.Unlock()
	began := time.Now()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		of.now--
		h.took = time.Since(began)
	}()
	return h.send(ctx, h.far, f)
}

// Powers implements driver.Store.
func (h simHome) Powers() driver.Powers {
	return driver.CanAll | driver.CanBook | driver.CanID | driver.CanSettle | driver.CanForget
}

// Do implements driver.Store.
func (h simHome) Do(ctx context.Context, b *driver.Batch) error {
	of := &h.calls
	if b.Ops[0].Kind == driver.Settle {
		of = &h.backs
	}
	return simBatch(b, func(do func(*memstore.Store)) error { return h.call(ctx, of, do) }, func(asked *driver.Batch) {
		for i := range asked.Ops {
			switch op := &asked.Ops[i]; op.Kind {
			case driver.Charge:
				h.s.decided(op.Key, op.Answer)
			case driver.Forget:
				h.s.wasReset(op.Key)
			}
		}
	})
}

// A simNear is a process's client of its region's store, as one that decides on the own share.
type simNear struct{ *process }

// Powers implements driver.Store.
func (n simNear) Powers() driver.Powers { return driver.CanSettle }

// Do implements driver.Store.
func (n simNear) Do(ctx context.Context, b *driver.Batch) error {
	return simBatch(b, func(do func(*memstore.Store)) error { return n.send(ctx, n.near, do) }, func(asked *driver.Batch) {
		if op := &asked.Ops[0]; op.Kind == driver.Charge && op.Cost > 0 && op.Answer.Allowed() {
			n.s.spent(ctx)
		}
	})
}

// simBatch has a batch carried out where it is sent, and noted there, and takes the answers if they arrive.
func simBatch(b *driver.Batch, send func(do func(*memstore.Store)) error, note func(*driver.Batch)) error {
	asked := b.Clone()
	done, err := simReply(send, func(m *memstore.Store) (*driver.Batch, error) {
		err := m.Do(context.Background(), asked)
		note(asked)
		return asked, err
	})
	if done != nil {
		b.Take(done)
	}
	return err
}

// A simHolder is a process's client of its region's store.
type simHolder struct{ *process }

var _ window.Holder = simHolder{}

// clock returns the clock of the region, as nobody on a network can read it.
func (h simHolder) clock() int64 { return h.near.to.clock.now().UnixMicro() }

// Spend implements window.Holder.
func (h simHolder) Spend(ctx context.Context, s window.Spending) (window.Held, error) {
	return simHold(ctx, h, func(holder *memstore.Store) (window.Held, error) {
		held, err := holder.Spend(context.Background(), s)
		if held.Spent {
			h.s.spent(ctx)
		}
		return held, err
	})
}

// Bring implements window.Holder.
func (h simHolder) Bring(ctx context.Context, e window.Fetch) (bool, error) {
	return simHold(ctx, h, func(holder *memstore.Store) (bool, error) { return holder.Bring(context.Background(), e) })
}

// Return implements window.Holder.
func (h simHolder) Return(ctx context.Context, key string, began, keep int64) (int64, error) {
	return simHold(ctx, h, func(holder *memstore.Store) (int64, error) {
		return holder.Return(context.Background(), key, began, keep)
	})
}

// Forget implements window.Holder.
func (h simHolder) Forget(ctx context.Context, key string) error {
	_, err := simHold(ctx, h, func(holder *memstore.Store) (bool, error) { return true, holder.Forget(context.Background(), key) })
	return err
}

// simHold has f done by the region's store, and returns what it returned, if that arrives.
func simHold[T any](ctx context.Context, h simHolder, f func(*memstore.Store) (T, error)) (T, error) {
	return simReply(func(do func(*memstore.Store)) error { return h.send(ctx, h.near, do) }, f)
}

func simReply[T any](send func(do func(*memstore.Store)) error, f func(*memstore.Store) (T, error)) (value T, err error) {
	type reply struct {
		value T
		err   error
	}
	replies := make(chan reply, 1) // a request may arrive when its caller has gone
	if err := send(func(m *memstore.Store) {
		value, err := f(m)
		replies <- reply{value, err}
	}); err != nil {
		return value, err
	}
	r := <-replies
	return r.value, r.err
}
