package lease

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// A bug changes what simulated processes are built of, so that something is wrong.
type bug struct {
	home   func(simHome) driver.Store
	holder func(simHolder) window.Holder
	near   func(simNear) driver.Store
	rate   int64 // by which the clocks of regions are slower, in parts in a million

	found string // a part of what the simulation says of it
}

// A simulation is processes in regions that share limits.
type simulation struct {
	seed     uint64
	start    time.Time
	bug      *bug
	limits   []sash.Limit
	opts     *sash.Options
	longest  time.Duration
	least    int64
	shared   bool // the processes of a region share leases
	maySleep bool // bookings, IDs, several subjects
	forgets  bool // resets
	crowd    bool // callers do not wait for each other, and come faster than the pools of clients can send calls home
	own      *Own // of each region; nil without
	home     *site
	regions  []*region
	keys     []string
	end      time.Duration // of faults; demand goes on after that

	served [simRegions]atomic.Bool // had an admission after all was well

	mu       sync.Mutex
	spends   map[uint64]time.Duration           // when a call last took units from a lease; guarded by mu, as all below
	decides  map[string]map[int64]time.Duration // when the home decided what has this At, by key
	resets   map[string][]time.Duration         // when the home forgot a key
	ordered  []simReset
	lives    []*process
	calls    []simCall
	problems []string // the first hundred
}

// A region is a place with a store and ways.
type region struct {
	*site
	near, far *way
}

// A simReset is a reset that a caller made.
type simReset struct {
	key    string
	region int
	ended  time.Duration
	done   time.Duration // when the home did it
}

// A simCall is a call that a caller made and a limiter answered.
type simCall struct {
	id           uint64
	process      *process
	key          string
	cost, back   int64
	began, ended time.Duration
	res          sash.Result
	err          error
	at           time.Duration // when it counts: see findInstants
	epoch        int           // resets of its key before its units were charged
}

type callKey struct{}

func (s *simulation) now() time.Duration { return time.Since(s.start) }

// spent notes that a call took its units from a lease of a region.
func (s *simulation) spent(ctx context.Context) {
	call, _ := ctx.Value(callKey{}).(uint64)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spends[call] = s.now()
}

// decided notes when the home decided.
func (s *simulation) decided(key string, answer driver.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decides[key] == nil {
		s.decides[key] = make(map[int64]time.Duration)
	}
	if _, known := s.decides[key][answer.At]; !known {
		s.decides[key][answer.At] = s.now()
	}
}

func (s *simulation) wasReset(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets[key] = append(s.resets[key], s.now())
}

func (s *simulation) broken(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < 100 {
		s.problems = append(s.problems, fmt.Sprintf(format, args...))
	}
}

const (
	simRegions = 3
	// mostDrift is by how many parts in a million the clock of a region runs faster or slower than the home's: one in 1,024.
	mostDrift = 976
)

// simulate runs one seed and returns the promises that were broken.
func simulate(t *testing.T, seed uint64, b *bug) (problems []string, calls []simCall) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s := newSimulation(seed, rng, b)
		var group sync.WaitGroup
		group.Go(func() { s.fail(rand.New(rand.NewPCG(seed, 5)), &group) })
		for i := range s.regions {
			for p := range 1 + rng.IntN(2) {
				group.Go(func() { s.live(t, i, uint64(8*i+p+1), rand.New(rand.NewPCG(seed, uint64(8*i+p+10)))) })
			}
		}
		group.Wait()
		time.Sleep(3 * time.Minute) // every lease ends, and what is left goes back
		synctest.Wait()
		s.judge()
		problems, calls = s.problems, s.calls
	})
	return problems, calls
}

func newSimulation(seed uint64, rng *rand.Rand, b *bug) *simulation {
	s := &simulation{
		seed: seed, start: time.Now(), bug: b, keys: []string{"a", "a", "a", "a", "a", "a", "b"}, end: 4 * time.Second,
		shared: rng.IntN(4) > 0, least: 1 + rng.Int64N(30), maySleep: rng.IntN(2) == 0, forgets: rng.IntN(4) == 0,
		longest: time.Duration(20+rng.IntN(400)) * time.Millisecond,
		limits:  []sash.Limit{sash.Every(20+rng.Int64N(300), time.Duration(200+rng.IntN(1500))*time.Millisecond)},
		spends:  make(map[uint64]time.Duration), decides: make(map[string]map[int64]time.Duration), resets: make(map[string][]time.Duration),
	}
	if rng.IntN(3) == 0 {
		s.limits = append(s.limits, sash.Every(200+rng.Int64N(500), 2*time.Second))
	}
	if own := rand.New(rand.NewPCG(seed, 6)); s.shared && own.IntN(2) == 0 {
		s.own = &Own{Regions: simRegions, Percent: 1 + own.IntN(16)}
		s.forgets = false // what is reset at home is not at once in every region
	}
	if own := rand.New(rand.NewPCG(seed, 7)); own.IntN(4) == 0 {
		s.opts = &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: 5 * time.Millisecond}
	}
	if crowd := rand.New(rand.NewPCG(seed, 8)); crowd.IntN(16) == 0 {
		s.crowd, s.shared, s.own, s.opts, s.maySleep, s.forgets = true, true, nil, nil, false, false
		s.longest = 800*time.Millisecond + time.Duration(crowd.IntN(800))*time.Millisecond // four trips at least
		s.limits = []sash.Limit{sash.Every(10_000, 2*time.Second)}
	}
	s.home = newSite(simClock{start: s.start, offset: hours(rng)})
	for i := range simRegions {
		at := newSite(simClock{start: s.start, offset: hours(rng), rate: rng.Int64N(2*mostDrift+1) - mostDrift - b.rate})
		s.regions = append(s.regions, &region{
			site: at,
			near: &way{id: uint64(2*i + 1), to: at, oneWay: 200 * time.Microsecond},
			far:  &way{id: uint64(2*i + 2), to: s.home, oneWay: [simRegions]time.Duration{time.Millisecond, 40 * time.Millisecond, 75 * time.Millisecond}[i]},
		})
	}
	return s
}

func hours(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(10*time.Hour))) - 5*time.Hour
}

// fail lets ways and sites fail, one after the other, until the end.
func (s *simulation) fail(rng *rand.Rand, group *sync.WaitGroup) {
	for s.now() < s.end {
		time.Sleep(time.Duration(rng.Int64N(int64(400 * time.Millisecond))))
		r, lasts := s.regions[rng.IntN(simRegions)], time.Duration(50+rng.IntN(900))*time.Millisecond
		switch rng.IntN(8) {
		case 0: // the region's store restarts: it loses its leases, but not what it has charged itself
			r.down.Store(true)
			if s.own == nil {
				r.restart()
			}
			group.Go(func() { time.Sleep(lasts / 4); r.down.Store(false) })
		case 1: // the home fails over to a replica that has all
			s.home.down.Store(true)
			group.Go(func() { time.Sleep(lasts / 2); s.home.down.Store(false) })
		case 2, 3:
			s.become(group, r.near, weather(1+rng.IntN(int(weathers)-1)), lasts/2)
		default:
			s.become(group, r.far, weather(1+rng.IntN(int(weathers)-1)), lasts)
		}
	}
}

func (s *simulation) become(group *sync.WaitGroup, w *way, now weather, lasts time.Duration) {
	w.weather.Store(int32(now))
	group.Go(func() { time.Sleep(lasts); w.weather.Store(int32(fine)) })
}

// healthy returns the latest time at which faults end.
func (s *simulation) healthy() time.Duration { return s.end + 1500*time.Millisecond }

// recovered returns from when on no call fails.
func (s *simulation) recovered() time.Duration { return s.healthy() + lastPause + 2*time.Second }

// live runs one process after the other, at a place of a region.
func (s *simulation) live(t *testing.T, region int, place uint64, rng *rand.Rand) {
	stops := s.healthy() + s.patience() + time.Second
	if s.crowd {
		stops = s.recovered() + time.Second
	}
	for life := uint64(0); s.now() < stops && !s.allServed(); life++ {
		until := stops
		if s.now() < s.end && rng.IntN(3) == 0 {
			until = min(s.end, s.now()+time.Duration(300+rng.IntN(3000))*time.Millisecond)
		}
		p := &process{
			s: s, id: place<<8 | life, region: region, near: s.regions[region].near, far: s.regions[region].far,
			heeds: rng.IntN(2) == 0, timeout: time.Duration(300+rng.IntN(1500)) * time.Millisecond,
			pool: make(chan struct{}, mostDirect+2), // as small as that of go-redis
		}
		s.mu.Lock()
		s.lives = append(s.lives, p)
		s.mu.Unlock()
		store, err := s.open(p)
		if err != nil {
			t.Error(err)
			return
		}
		var group sync.WaitGroup
		for w := range uint64(2) {
			worker := rand.New(rand.NewPCG(rng.Uint64(), w))
			group.Go(func() { s.work(t, p, store, p.id<<8|w, until, worker) })
		}
		if until < stops && rng.IntN(2) == 0 { // it is killed
			time.Sleep(until - s.now())
			p.dead.Store(true)
		}
		group.Wait()
		if !p.dead.Load() {
			_ = store.Release(t.Context())
		}
	}
}

// open makes the store of a process.
func (s *simulation) open(p *process) (*Store, error) {
	var home driver.Store = simHome{p}
	if s.bug.home != nil {
		home = s.bug.home(simHome{p})
	}
	if !s.shared {
		return New(home, s.longest)
	}
	var holder window.Holder = simHolder{p}
	if s.bug.holder != nil {
		holder = s.bug.holder(simHolder{p})
	}
	opts := &Options{}
	if s.own != nil {
		own := *s.own
		own.Store = simNear{p}
		if s.bug.near != nil {
			own.Store = s.bug.near(simNear{p})
		}
		opts.Own = &own
	}
	store, err := Shared(home, holder, s.longest, opts)
	if err == nil {
		store.least = s.least
	}
	return store, err
}

// work makes the calls of one caller, in spells of much and of little demand.
func (s *simulation) work(t *testing.T, p *process, store *Store, worker uint64, until time.Duration, rng *rand.Rand) {
	limiter, err := sash.New(store, s.opts, s.limits...)
	if err != nil {
		t.Error(err)
		return
	}
	most := s.limits[0].Units
	var spell, gap, pause time.Duration
	var crowd sync.WaitGroup
	defer crowd.Wait()
	for n := uint64(1); s.now() < until && !s.allServed(); n++ {
		if s.crowd {
			time.Sleep(1 + time.Duration(rng.Int64N(int64(20*time.Millisecond))))
			crowd.Go(func() {
				c := simCall{id: worker<<24 | n, process: p, key: "a", cost: 1}
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), callKey{}, c.id), time.Second)
				defer cancel()
				s.make(ctx, limiter, c, nil)
			})
			continue
		}
		if spell <= s.now() {
			spell, gap = s.now()+time.Duration(100+rng.IntN(800))*time.Millisecond, 12*time.Millisecond<<rng.IntN(5)
			if pause = 0; rng.IntN(2) == 0 { // bursts, some of which come when a lease ends
				gap, pause = 3*time.Millisecond, s.longest/2+time.Duration(rng.Int64N(int64(s.longest/2)))
			}
		}
		if pause > 0 && rng.IntN(8) == 0 {
			time.Sleep(pause)
		}
		time.Sleep(1 + time.Duration(rng.Int64N(int64(gap))))
		c := simCall{id: worker<<24 | n, process: p, key: s.keys[rng.IntN(len(s.keys))], cost: 1 + rng.Int64N(1+most/16)}
		if s.now() > s.healthy() {
			c.key, c.cost, gap, pause = "a", 1, 60*time.Millisecond, 0
		}
		ctx := context.WithValue(t.Context(), callKey{}, c.id)
		if rng.IntN(10) == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(1+rng.IntN(200))*time.Millisecond)
			defer cancel()
		}
		s.make(ctx, limiter, c, rng)
	}
}

// make makes a call of a random kind.
func (s *simulation) make(ctx context.Context, limiter *sash.Limiter, c simCall, rng *rand.Rand) {
	c.began = s.now()
	c.process.mu.Lock()
	c.process.asked++
	c.process.mu.Unlock()
	kind := 60
	if rng != nil {
		kind = rng.IntN(60)
	}
	switch {
	case kind == 0 && s.forgets && c.began < s.end:
		err := limiter.Reset(ctx, c.key)
		s.mu.Lock()
		defer s.mu.Unlock()
		if all := s.resets[c.key]; err == nil && s.shared && len(all) > 0 {
			s.ordered = append(s.ordered, simReset{c.key, c.process.region, s.now(), all[len(all)-1]})
		}
	case kind < 6:
		r, err := limiter.Reserve(ctx, c.key, c.cost, nil)
		s.hold(ctx, c, r, err, rng)
	case kind < 9 && s.maySleep:
		r, err := limiter.Reserve(ctx, c.key, c.cost, &sash.ReserveOptions{WaitUpTo: time.Duration(1+rng.IntN(500)) * time.Millisecond})
		s.hold(ctx, c, r, err, rng)
	case kind < 11 && s.maySleep:
		id := fmt.Sprint(c.id)
		for range 1 + rng.IntN(3) {
			if c.res, c.err = limiter.AllowOnce(ctx, id, c.key, c.cost); c.err == nil && c.res.Allowed {
				break
			}
		}
		s.note(c)
	case kind < 13 && s.maySleep:
		c.res, c.err = limiter.AllowAll(ctx, sash.Subject{Key: "a", Cost: c.cost}, sash.Subject{Key: "b", Cost: 1})
		other := c
		c.key, other.key, other.cost = "a", "b", 1
		s.note(c)
		s.note(other)
	default:
		c.res, c.err = limiter.AllowN(ctx, c.key, c.cost)
		s.note(c)
	}
}

// hold notes a reservation and settles it, perhaps.
func (s *simulation) hold(ctx context.Context, c simCall, r *sash.Reservation, err error, rng *rand.Rand) {
	c.err = err
	if err == nil {
		c.res = r.Result()
	}
	at := s.note(c)
	if err != nil || !c.res.Allowed || at < 0 || rng.IntN(4) == 0 {
		return
	}
	time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
	units := rng.Int64N(c.cost + 1)
	_ = r.Settle(ctx, units)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[at].back = c.cost - units
}

// note notes a call whose answer reached a process that lived, and returns its place, or -1.
func (s *simulation) note(c simCall) int {
	c.ended = s.now()
	if c.process.dead.Load() {
		return -1
	}
	if c.began > s.healthy() && c.err == nil && c.res.Allowed {
		s.served[c.process.region].Store(true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	return len(s.calls) - 1
}

// allServed reports whether every region had an admission after all was well: then the run is over.
func (s *simulation) allServed() bool {
	return !s.crowd && s.served[0].Load() && s.served[1].Load() && s.served[2].Load()
}

// sorted returns the admitted calls of a key in the order of their instants.
func (s *simulation) sorted(key string) (all []*simCall) {
	for i := range s.calls {
		if c := &s.calls[i]; c.key == key && c.err == nil && c.res.Allowed {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *simCall) int { return cmp.Compare(a.at, b.at) })
	return all
}
