package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A bug changes how a simulated process is built, so that it does something wrong.
type bug struct {
	store     func(driver.Store) driver.Store
	local     func(driver.Store) driver.Store
	instances func() int
	classify  func(error) Kind
	modes     Modes
	guard     func(*guard)

	found string // a part of what the simulation says of it
}

// A simulation is processes that share a server and limits.
type simulation struct {
	server    *server
	limits    []sash.Limit
	instances int
	modes     Modes
	keys      []string

	mu       sync.Mutex
	calls    []simCall // guarded by mu
	resets   []simCall // guarded by mu: of the key c
	problems []string  // guarded by mu: the first hundred
}

// A simCall is a call that a caller made.
type simCall struct {
	id      uint64
	once    bool // the store gets the ID
	repeats bool // a call that was admitted before
	process string
	keys    []string
	cost    int64
	within  time.Duration // how far ahead it may be booked; 0 is a plain call
	began   time.Time
	ended   time.Time
	timeout time.Duration
	res     sash.Result
	err     error

	settled time.Time // when it was settled; zero is never
	back    int64     // units that the settlement gave back

	counts time.Time // when it counts in its process's share: see findStarts
}

func (s *simulation) broken(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < 100 {
		s.problems = append(s.problems, fmt.Sprintf("at %v: %s", time.Now().Format("05.000000"), fmt.Sprintf(format, args...)))
	}
}

const simLength = 6 * time.Second

// simulate runs one seed and returns the promises that were broken.
func simulate(t *testing.T, seed uint64, b *bug) (problems []string, calls int) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s := newSimulation(rng)
		var group sync.WaitGroup
		group.Go(func() { s.makeWeather(rand.New(rand.NewPCG(seed, 5))) })
		var stores []*Store
		for i := range s.instances {
			store := Must(s.process(fmt.Sprintf("p%d ", i), rng, b))(t)
			stores = append(stores, store)
			for w := range 2 {
				worker := rand.New(rand.NewPCG(seed, uint64(100*i+w+10)))
				group.Go(func() { s.work(t, store, i, w, worker) })
			}
		}
		group.Wait()
		time.Sleep(20 * time.Second) // clients give up, pauses end
		for i, store := range stores {
			s.rest(t, i, store)
		}
		s.judge()
		s.mu.Lock()
		defer s.mu.Unlock()
		problems, calls = s.problems, len(s.calls)
	})
	return problems, calls
}

func newSimulation(rng *rand.Rand) *simulation {
	s := &simulation{
		server: &server{
			charges: make(map[string][]simCharge), settled: make(map[string]bool), once: make(map[string]driver.Answer), written: make(map[string]int64),
			executions: make(map[uint64]int), admissions: make(map[uint64]simTime), resets: make(map[uint64]time.Time),
			writes: make(map[string][]*simWrite), asked: make(map[uint64][]time.Time),
		},
		limits:    []sash.Limit{sash.Every(4+rng.Int64N(12), time.Second+time.Duration(rng.IntN(3000))*time.Millisecond)},
		instances: 1 + rng.IntN(4),
		keys:      []string{"a", "b", "c"}, // c is for reservations and resets
	}
	if rng.IntN(2) == 0 {
		s.limits = append(s.limits, sash.Every(20+rng.Int64N(20), 6*time.Second))
	}
	s.modes = [...]Modes{
		{},
		{Rules: []Rule{{Mode: Local}}},
		{Rules: []Rule{{Mode: Local}}},
		{Rules: []Rule{{MaxCost: 1, Mode: Open}, {MaxCost: 2, Mode: Local}}},
		{Guard: true, Rules: []Rule{{MaxCost: 2, Mode: Local}}},
	}[rng.IntN(5)]
	return s
}

func (s *simulation) process(name string, rng *rand.Rand, b *bug) (*Store, error) {
	l := &link{
		server: s.server, process: name, heeds: rng.IntN(2) == 0, timeout: time.Duration(30+rng.IntN(2000)) * time.Millisecond,
		budget: DefaultBudget, most: 8, broken: s.broken, probes: make(map[*int]time.Time),
		rng: rand.New(rand.NewPCG(rng.Uint64(), 6)),
	}
	var inner driver.Store = l
	if b.store != nil {
		inner = b.store(inner)
	}
	var local driver.Store = memstore.New(nil)
	if b.local != nil {
		local = b.local(local)
	}
	opts := &Options{
		Modes: s.modes, MaxInFlight: l.most, Local: local,
		Instances: func() int { return s.instances }, Classify: b.classify,
	}
	if b.instances != nil {
		opts.Instances = b.instances
	}
	if b.modes.Rules != nil {
		opts.Modes = b.modes
	}
	store, err := New(inner, opts)
	if err != nil {
		return nil, err
	}
	jitter := rand.New(rand.NewPCG(rng.Uint64(), 7))
	store.breakers[0].random = jitter.Float64 // under the breaker's lock
	if rng.IntN(2) == 0 {
		store.local.mostAccounts = rng.Int64N(2) // of two subjects
	}
	l.probe = func() bool { return store.State() != Up }
	if b.guard != nil {
		b.guard(store.guard)
	}
	return store, nil
}

// makeWeather lets the server and the network fail in one way after the other.
func (s *simulation) makeWeather(rng *rand.Rand) {
	end := time.Now().Add(simLength)
	for time.Now().Before(end) {
		w, d := fine, time.Duration(200+rng.IntN(900))*time.Millisecond
		if rng.IntN(2) == 0 {
			w = weather(rng.IntN(int(weathers)))
		}
		switch rng.IntN(6) {
		case 0: // a replica takes over
			w = refused
			s.server.lose(time.Duration(rng.IntN(800)) * time.Millisecond)
		case 1:
			s.server.jump(time.Duration(rng.IntN(8000)-4000) * time.Millisecond)
		}
		s.server.become(w, d)
		time.Sleep(d)
	}
	s.server.become(fine, time.Hour)
}

// work makes the calls of one caller.
func (s *simulation) work(t *testing.T, store *Store, process, worker int, rng *rand.Rand) {
	limiter, err := sash.New(store, nil, s.limits...)
	if err != nil {
		t.Error(err)
		return
	}
	end := time.Now().Add(simLength)
	for n := uint64(1); time.Now().Before(end); n++ {
		gap := 16 * time.Millisecond << rng.IntN(5)
		time.Sleep(time.Duration(rng.Int64N(int64(gap))))
		c := simCall{
			id:      uint64(process+1)<<32 | uint64(worker)<<24 | n,
			process: fmt.Sprintf("p%d ", process),
			keys:    []string{s.keys[rng.IntN(2)]},
			cost:    1 + rng.Int64N(3),
			timeout: time.Hour,
		}
		if rng.IntN(8) == 0 {
			c.timeout = time.Duration(rng.IntN(60)) * time.Millisecond
		}
		switch rng.IntN(12) {
		case 0, 1:
			c.keys = s.keys[:2]
		case 2, 3, 4:
			c.once = true
		}
		if rng.IntN(3) == 0 {
			c.within = time.Duration(1+rng.IntN(4000)) * time.Millisecond
		}
		if rng.IntN(2) == 0 {
			c.keys, c.once = s.keys[2:], false
			s.hold(t, store, limiter, &c, rng)
			continue
		}
		for tries := 1 + rng.IntN(3); tries > 0; tries-- {
			r, at := s.call(t, limiter, &c)
			if r != nil && !c.once && rng.IntN(4) == 0 { // it leaves the queue
				_ = r.Cancel(context.WithValue(t.Context(), callKey{}, c.id))
				s.mu.Lock()
				s.calls[at].settled, s.calls[at].back = time.Now(), c.cost
				s.mu.Unlock()
			}
			if !c.once {
				break
			}
			c.repeats = c.repeats || c.err == nil && c.res.Allowed
			time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		}
	}
}

// call makes a call and notes what came of it. It returns the reservation of a call that was admitted, if it has one, and
// the place of the note.
func (s *simulation) call(t *testing.T, limiter *sash.Limiter, c *simCall) (r *sash.Reservation, at int) {
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), callKey{}, c.id), c.timeout)
	defer cancel()
	c.began = time.Now()
	switch id := fmt.Sprint(c.id); {
	case len(c.keys) > 1 && c.within > 0:
		b := []sash.Subject{{Key: "b", Cost: c.cost}}
		var both *sash.Reservation
		if both, c.err = limiter.Reserve(ctx, "a", c.cost, &sash.ReserveOptions{WaitUpTo: c.within, All: b}); c.err == nil {
			c.res = both.Result()
		}
	case c.once && c.within > 0:
		r, c.err = limiter.Reserve(ctx, c.keys[0], c.cost, &sash.ReserveOptions{WaitUpTo: c.within, ID: id})
	case c.within > 0:
		r, c.err = limiter.Reserve(ctx, c.keys[0], c.cost, &sash.ReserveOptions{WaitUpTo: c.within})
	case c.has("c"):
		r, c.err = limiter.Reserve(ctx, "c", c.cost, nil)
	case len(c.keys) > 1:
		c.res, c.err = limiter.AllowAll(ctx, sash.Subject{Key: "a", Cost: c.cost}, sash.Subject{Key: "b", Cost: c.cost})
	case c.once:
		c.res, c.err = limiter.AllowOnce(ctx, id, c.keys[0], c.cost)
	default:
		c.res, c.err = limiter.AllowN(ctx, c.keys[0], c.cost)
	}
	c.ended = time.Now()
	if r != nil {
		c.res = r.Result()
		if !r.Allowed() {
			r = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, *c)
	return r, len(s.calls) - 1
}

// hold reserves units and settles them, perhaps, and resets the subject now and then.
func (s *simulation) hold(t *testing.T, store *Store, limiter *sash.Limiter, c *simCall, rng *rand.Rand) {
	ctx := context.WithValue(t.Context(), callKey{}, c.id)
	c.began, c.timeout = time.Now(), time.Hour
	if rng.IntN(4) == 0 {
		s.mu.Lock()
		at := len(s.resets)
		s.resets = append(s.resets, *c)
		s.mu.Unlock()
		err := limiter.Reset(ctx, "c")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resets[at].ended, s.resets[at].err = time.Now(), err
		return
	}
	r, at := s.call(t, limiter, c)
	if r == nil || rng.IntN(4) == 0 {
		return
	}
	time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
	units, before := rng.Int64N(c.cost+1), store.Stats()
	if err := r.Settle(ctx, units); err != nil && c.res.Source == driver.FromLocal {
		s.broken("call %x was admitted locally and cannot be settled: %v", c.id, err)
	}
	c.settled, c.back = time.Now(), c.cost-units
	s.judgeSettlement(c, before, store.Stats())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[at].settled, s.calls[at].back = c.settled, c.back
}

// rest looks at what a process holds when nobody called for a while, lets it find the server working again, and closes it.
func (s *simulation) rest(t *testing.T, i int, store *Store) {
	if n := store.Stats().Backlog; n != 0 {
		s.broken("process %d waits for a call before it writes the charges of %d subjects", i, n)
	}
	limiter := Must(sash.New(store, nil, s.limits...))(t)
	if _, err := limiter.Peek(t.Context(), "rest"); err != nil {
		s.broken("process %d has no answer when all is well: %v", i, err)
	}
	time.Sleep(time.Second)
	if got := store.Stats(); store.State() != Up || got.InFlight != 0 || got.Backlog != 0 {
		s.broken("process %d is not at rest: %v, %+v", i, store.State(), got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Close(over); err != nil && store.Stats().Backlog == 0 {
		s.broken("process %d has nothing to write when it is closed: %v", i, err)
	}
	s.judgeStats(i, store.Stats())
}
