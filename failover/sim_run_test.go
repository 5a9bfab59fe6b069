package failover

import (
	"context"
	"errors"
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
	local     func(LocalStore) LocalStore
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
	began   time.Time
	ended   time.Time
	timeout time.Duration
	res     sash.Result
	err     error
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
			store, err := s.process(fmt.Sprintf("p%d ", i), rng, b)
			if err != nil {
				t.Fatal(err)
			}
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
			executions: make(map[uint64]int), admissions: make(map[uint64]simTime),
		},
		limits:    []sash.Limit{sash.Every(4+rng.Int64N(12), time.Second+time.Duration(rng.IntN(3000))*time.Millisecond)},
		instances: 1 + rng.IntN(4),
		keys:      []string{"a", "b"},
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
	var local LocalStore = memstore.New(nil)
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
func (s *simulation) work(t *testing.T, store driver.Store, process, worker int, rng *rand.Rand) {
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
			c.keys = s.keys
		case 2, 3, 4:
			c.once = true
		}
		for tries := 1 + rng.IntN(3); tries > 0; tries-- {
			s.call(t, limiter, &c)
			if !c.once {
				break
			}
			c.repeats = c.repeats || c.err == nil && c.res.Allowed
			time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		}
	}
}

// call makes a call and notes what came of it.
func (s *simulation) call(t *testing.T, limiter *sash.Limiter, c *simCall) {
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), callKey{}, c.id), c.timeout)
	defer cancel()
	c.began = time.Now()
	switch {
	case len(c.keys) > 1:
		c.res, c.err = limiter.AllowAll(ctx, sash.Subject{Key: "a", Cost: c.cost}, sash.Subject{Key: "b", Cost: c.cost})
	case c.once:
		c.res, c.err = limiter.AllowOnce(ctx, fmt.Sprint(c.id), c.keys[0], c.cost)
	default:
		c.res, c.err = limiter.AllowN(ctx, c.keys[0], c.cost)
	}
	c.ended = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, *c)
}

// rest looks at what a process holds when nobody called for a while, lets it find the server working again, and closes
// it.
func (s *simulation) rest(t *testing.T, i int, store *Store) {
	if n := store.Stats().Backlog; n != 0 {
		s.broken("process %d waits for a call before it writes the charges of %d subjects", i, n)
	}
	limiter, err := sash.New(store, nil, s.limits...)
	if err != nil {
		t.Fatal(err)
	}
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

// judgeStats compares what a process counts with what it admitted and with what the server received.
func (s *simulation) judgeStats(process int, stats Stats) {
	var admitted, received int64
	for _, c := range s.calls {
		if c.process == fmt.Sprintf("p%d ", process) && c.err == nil && c.res.Allowed && c.res.Source == driver.FromLocal {
			admitted += c.cost * int64(len(c.keys))
			if c.once { // the server can have charged it before, and a repetition is written again: the ID says so
				received += c.cost
			}
		}
	}
	for _, key := range s.keys {
		received += s.server.written[fmt.Sprintf("p%d ", process)+key]
	}
	if stats.Written > received { // what has left before its reply came is counted as nothing
		s.broken("process %d wrote %d units, and counts %+v", process, received, stats)
	}
	if counted := stats.Written + stats.Lost + stats.Doubtful; counted > admitted {
		s.broken("process %d admitted %d units locally and counts %d", process, admitted, counted)
	}
}

// judge looks at everything that was done.
func (s *simulation) judge() {
	for i := range s.calls {
		s.judgeCall(&s.calls[i])
	}
	for call, n := range s.server.executions {
		if n > 1 && call != 0 {
			s.broken("call %x was charged or refused %d times", call, n)
		}
	}
	for _, key := range s.keys {
		s.judgeStore(key)
		for i := range s.instances {
			s.judgeLocal(fmt.Sprintf("p%d ", i), key)
		}
	}
}

// judgeCall looks at one answer: in time, from where the policy says, and charged where it says.
func (s *simulation) judgeCall(c *simCall) {
	took := c.ended.Sub(c.began)
	if took > min(DefaultBudget, c.timeout)+10*time.Millisecond {
		s.broken("call %x: the answer took %v", c.id, took)
	}
	admission, charged := s.server.admissions[c.id]
	mode := s.modes.Mode(c.cost)
	switch {
	case c.err != nil:
		if gaveUp := errors.Is(c.err, context.DeadlineExceeded); gaveUp && took < c.timeout || !gaveUp && !errors.Is(c.err, sash.ErrUnavailable) {
			s.broken("call %x: %v after %v", c.id, c.err, took)
		} else if !gaveUp && mode != Closed {
			s.broken("call %x has an error under mode %v: %v", c.id, mode, c.err)
		}
	case c.res.Source == driver.FromStore:
		wrong := c.res.Allowed != charged
		if c.once { // another try can be charged, or this process can have written the call
			wrong = c.res.Allowed && !charged && !c.repeats
		}
		if wrong || c.res.Cause != nil {
			s.broken("call %x: the store's answer is %v, and it admitted: %v %v", c.id, c.res.Allowed, charged, admission)
		}
	case mode == Closed,
		mode == Open && (c.res.Source != driver.FromPolicy || !c.res.Allowed),
		mode == Local && c.res.Source != driver.FromLocal,
		!errors.Is(c.res.Cause, sash.ErrUnavailable):
		s.broken("call %x under mode %v: %v from the %v because of %v", c.id, mode, c.res.Allowed, c.res.Source, c.res.Cause)
	}
}

// judgeStore checks the bound of what the store admitted, as callers saw it: N in every window, what
// was lost besides, and N for a clock that jumped ahead.
func (s *simulation) judgeStore(key string) {
	type admission struct {
		when  time.Time
		units int64
	}
	var all []admission
	for _, c := range s.calls {
		if a := s.server.admissions[c.id]; c.has(key) && c.admitted(driver.FromStore) && !a.lost {
			all = append(all, admission{a.when, c.cost})
		}
	}
	for _, l := range s.limits {
		for _, last := range all {
			from, units, bound := last.when.Add(-l.Window), int64(0), l.Units
			for _, a := range all {
				if a.when.After(from) && !a.when.After(last.when) {
					units += a.units
				}
			}
			for _, jump := range s.server.jumps {
				if jump.After(from) && !jump.After(last.when) {
					bound += l.Units
				}
			}
			if units > bound {
				s.broken("%d units of %s were admitted by the store in %v, at most %d", units, key, l.Window, bound)
			}
		}
	}
}

// judgeLocal checks that a process admitted locally no more than its share, with what it knew of, and that
// nothing was written to the store twice.
func (s *simulation) judgeLocal(process, key string) {
	var owed int64
	for i, c := range s.calls {
		if c.process != process || !c.has(key) || !c.admitted(driver.FromLocal) {
			continue
		}
		if _, charged := s.server.admissions[c.id]; !charged {
			owed += c.cost
		}
		for _, l := range s.limits {
			share, units := l.Units/int64(s.instances), int64(0)
			for j, d := range s.calls {
				if d.process != process || !d.has(key) || !d.ended.Truncate(time.Microsecond).After(c.ended.Truncate(time.Microsecond).Add(-l.Window)) {
					continue
				}
				known := d.admitted(driver.FromLocal) && j <= i || d.admitted(driver.FromStore) && d.ended.Before(c.ended)
				if known {
					units += d.cost
				}
			}
			if units > share {
				s.broken("%s admitted %d units of %s locally in %v: its share is %d", process, units, key, l.Window, share)
			}
		}
	}
	if written := s.server.written[process+key]; written > owed {
		s.broken("%d units of %s that %s admitted locally were written to the store; %d were owed", written, key, process, owed)
	}
}

func (c *simCall) has(key string) bool { return c.keys[0] == key || len(c.keys) > 1 }

func (c *simCall) admitted(by sash.Source) bool {
	return c.err == nil && c.res.Allowed && c.res.Source == by && !c.repeats
}
