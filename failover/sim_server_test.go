package failover

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"example.com/sash/driver"
)

// A weather is how a simulated server and its network are.
type weather uint8

const (
	fine    weather = iota // answers take up to 2 ms
	slow                   // up to 120 ms
	lossy                  // requests and replies get lost, and replies come twice
	refused                // connections are refused
	deaf                   // requests get lost, all of them
	hung                   // the server stops, and does what it was asked when it goes on
	weathers
)

// A server is a simulated Redis: it keeps to the definition of a sliding log by counting every charge,
// on a clock of its own that can jump, and can lose its last charges.
type server struct {
	mu      sync.Mutex
	offset  time.Duration
	weather weather
	since   time.Time
	until   time.Time // of the weather
	charges map[string][]simCharge
	settled map[string]bool
	once    map[string]driver.Answer // of a call or a write with an ID

	decisions  int                // so far
	executions map[uint64]int     // of each call that a caller made
	admissions map[uint64]simTime // when such a call was admitted
	written    map[string]int64   // units charged without a caller, by process and key
	lost       []simCharge
	jumps      []time.Time            // forward
	resets     map[uint64]time.Time   // when each reset was done
	forgot     int                    // how often a subject was reset
	writes     map[string][]*simWrite // without a caller, by process and key
	asked      map[uint64][]time.Time // when each call was sent
}

// A simWrite is units that a process sent without a caller.
type simWrite struct {
	id         string
	units      int64
	sent, done time.Time // done is zero if the server did not charge them
	answered   bool
}

type simCharge struct {
	key   string
	at    int64 // the server's clock
	when  time.Time
	units int64
	call  uint64
}

// A simTime is when a call was admitted.
type simTime struct {
	when     time.Time // of the decision
	delay    time.Duration
	decision int // its number
	ahead    int // jumps of the clock until then
	resets   int // of all subjects until then
	lost     bool
}

// start returns when the call starts.
func (a simTime) start() time.Time { return a.when.Add(a.delay) }

type callKey struct{}

// callOf returns the number of a caller's call, or 0 for what a store does by itself.
func callOf(ctx context.Context) uint64 {
	call, _ := ctx.Value(callKey{}).(uint64)
	return call
}

func (s *server) clock() int64 { return time.Now().Add(s.offset).UnixMicro() }

// use returns the units of a key in the window that ends at an instant.
func (s *server) use(key string, l driver.Limit, at int64) (used int64) {
	for _, c := range s.charges[key] {
		if c.at > at-l.Window && c.at <= at {
			used += c.units
		}
	}
	return used
}

// refuses returns the limits that have no room for a request at an instant: in the window that ends there, or in one that
// ends at a booking and holds that instant.
func (s *server) refuses(req driver.Request, at int64) (refusals uint64) {
	for i, l := range req.Policy.Limits {
		most := s.use(req.Key, l, at)
		for _, c := range s.charges[req.Key] {
			if c.at > at && c.at < at+l.Window {
				most = max(most, s.use(req.Key, l, c.at))
			}
		}
		if most+req.Cost > l.Units {
			refusals |= 1 << i
		}
	}
	return refusals
}

// earliest returns the first instant from now on at which all requests have room and no charge is later.
func (s *server) earliest(reqs []driver.Request, now int64) int64 {
	var instants []int64
	for _, req := range reqs {
		for _, c := range s.charges[req.Key] {
			if c.units == 0 {
				continue
			}
			now = max(now, c.at)
			for _, l := range req.Policy.Limits {
				instants = append(instants, c.at+l.Window)
			}
		}
	}
	slices.Sort(instants)
	for _, at := range append([]int64{now}, instants...) {
		if at >= now && !slices.ContainsFunc(reqs, func(req driver.Request) bool { return s.refuses(req, at) != 0 }) {
			return at
		}
	}
	panic("no room when everything has left")
}

// decideOnce decides once for each ID. A refusal that charged nothing is decided again.
func (s *server) decideOnce(process string, call uint64, id string, req driver.Request) driver.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer, known := s.once[id]; known {
		answer.Delay = max(0, answer.At-s.clock())
		return answer
	}
	answer := s.decideNow(process, call, []driver.Request{req})[0]
	if answer.Allowed() || req.Policy.CountRefused {
		s.once[id] = answer
		s.executions[call]++
	}
	return answer
}

func (s *server) decide(process string, call uint64, reqs []driver.Request) []driver.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reqs[0].Cost == 0 {
		call = 0 // a limiter that keeps a call back looks, which is none of its caller's decisions
	}
	s.executions[call]++
	return s.decideNow(process, call, reqs)
}

// decideNow decides over requests for a process, all or nothing. The caller holds mu.
func (s *server) decideNow(process string, call uint64, reqs []driver.Request) []driver.Answer {
	now := s.clock()
	at, refused := now, uint64(0)
	if reqs[0].Within > 0 && reqs[0].Cost > 0 {
		if first := s.earliest(reqs, now); first-now <= reqs[0].Within {
			at = first
		} else {
			refused = 1 // even if a plain call would fit
		}
	}
	results := make([]driver.Answer, len(reqs))
	allowed := true
	for i, req := range reqs {
		statuses := make([]driver.Status, len(req.Policy.Limits))
		refusals := s.refuses(req, at) | refused
		for j, l := range req.Policy.Limits {
			statuses[j].Remaining = max(0, l.Units-s.use(req.Key, l, at))
			statuses[j].Retry = int64(refusals >> j & 1)
		}
		allowed = allowed && refusals == 0
		results[i].Set(at, refusals, statuses)
		results[i].Delay = at - now
	}
	if call != 0 && allowed {
		s.decisions++
		s.admissions[call] = simTime{
			when: time.UnixMicro(now).Add(-s.offset), delay: time.Duration(at-now) * time.Microsecond,
			decision: s.decisions, ahead: len(s.jumps), resets: s.forgot,
		}
	}
	for _, req := range reqs {
		if allowed || req.Policy.CountRefused {
			s.charges[req.Key] = append(s.charges[req.Key], simCharge{req.Key, at, time.Now(), req.Cost, call})
			if call == 0 {
				s.written[process+req.Key] += req.Cost
			}
		}
	}
	return results
}

// settle settles a call's charge, once for each ID.
func (s *server) settle(call uint64, set driver.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled[set.ID] {
		return
	}
	s.settled[set.ID] = true
	for i := range s.charges[set.Request.Key] {
		if c := &s.charges[set.Request.Key][i]; c.call == call {
			c.units = set.Units
		}
	}
}

func (s *server) reset(call uint64, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.charges, key)
	s.resets[call] = time.Now()
	s.forgot++
}

// lose makes the server what it was a while ago, as a replica that takes over is.
func (s *server) lose(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, charges := range s.charges {
		var kept []simCharge
		for _, c := range charges {
			if time.Since(c.when) >= d {
				kept = append(kept, c)
				continue
			}
			s.lost = append(s.lost, c)
			if a, ok := s.admissions[c.call]; ok {
				a.lost = true
				s.admissions[c.call] = a
			}
		}
		s.charges[key] = kept
	}
}

// become changes the weather.
func (s *server) become(w weather, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.weather, s.since, s.until = w, time.Now(), time.Now().Add(d)
}

func (s *server) jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.clock()
	s.offset += d
	if d > 0 {
		s.jumps = append(s.jumps, time.Now())
		return
	}
	for _, charges := range s.charges {
		for i := range charges {
			if c := &charges[i]; c.at > before {
				c.at += d.Microseconds() // a booking
			} else {
				c.at = min(c.at, s.clock())
			}
		}
	}
}

// A link is one process's client of the server.
type link struct {
	*server
	process string
	heeds   bool          // contexts
	timeout time.Duration // of its own
	probe   func() bool   // whether a call that comes now is one
	budget  time.Duration
	most    int
	broken  func(format string, args ...any)

	rngMu sync.Mutex
	rng   *rand.Rand // guarded by rngMu

	state  sync.Mutex
	now    int                // guarded by state: calls under way
	probes map[*int]time.Time // guarded by state: when those under way began
}

func (l *link) draw(n time.Duration) time.Duration {
	l.rngMu.Lock()
	defer l.rngMu.Unlock()
	return time.Duration(l.rng.Int64N(int64(n))) + 1
}

// watch notes a call and returns what ends it.
func (l *link) watch() (done func()) {
	l.state.Lock()
	defer l.state.Unlock()
	if l.now++; l.now > l.most {
		l.broken("%d calls under way, at most %d", l.now, l.most)
	}
	name := new(int)
	if l.probe() {
		for _, began := range l.probes {
			if time.Since(began) < l.budget {
				l.broken("two probes at a time")
			}
		}
		l.probes[name] = time.Now()
	}
	return func() {
		l.state.Lock()
		defer l.state.Unlock()
		l.now--
		delete(l.probes, name)
	}
}

// send has f done by the server, as the weather allows, and returns nil when the reply is there.
func (l *link) send(ctx context.Context, f func()) error {
	defer l.watch()()
	l.mu.Lock()
	w, until := l.weather, l.until
	if w != refused {
		l.asked[callOf(ctx)] = append(l.asked[callOf(ctx)], time.Now())
	}
	l.mu.Unlock()
	if w == refused {
		return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	var transit = [...]time.Duration{fine: time.Millisecond, slow: 60 * time.Millisecond, lossy: 10 * time.Millisecond, deaf: 1, hung: time.Millisecond}
	there, back := l.draw(transit[w]), l.draw(transit[w])
	luck := l.draw(100)
	reply := make(chan struct{}, 2)
	if !(w == deaf || w == lossy && luck <= 30) {
		go func() {
			time.Sleep(there)
			if w == hung {
				time.Sleep(time.Until(until))
			}
			f()
			time.Sleep(back)
			if w == lossy && luck <= 60 {
				return
			}
			reply <- struct{}{}
			reply <- struct{}{} // a second reply, which no caller receives
		}()
	}
	ended := ctx.Done()
	if !l.heeds {
		ended = nil
	}
	select {
	case <-reply:
		return nil
	case <-ended:
		return ctx.Err()
	case <-time.After(l.timeout):
		return os.ErrDeadlineExceeded
	}
}

func (l *link) Powers() driver.Powers {
	return driver.CanAll | driver.CanID | driver.CanBook | driver.CanSettle | driver.CanForget
}

func (l *link) Do(ctx context.Context, b *driver.Batch) error {
	call, op := callOf(ctx), b.Ops[0]
	switch op.Kind {
	case driver.Settle:
		return l.send(ctx, func() { l.settle(call, op.Settlement) })
	case driver.Forget:
		return l.send(ctx, func() { l.reset(call, op.Key) })
	}
	reqs := make([]driver.Request, len(b.Ops))
	for i := range reqs {
		reqs[i] = b.Ops[i].Request
	}
	answers, err := l.receive(ctx, op.ID, reqs, func() []driver.Answer {
		if op.ID != "" {
			return []driver.Answer{l.decideOnce(l.process, call, op.ID, op.Request)}
		}
		return l.decide(l.process, call, reqs)
	})
	for i := range answers {
		b.Ops[i].Answer = answers[i]
	}
	return err
}

// receive has f done by the server and returns its results when the reply is there.
func (l *link) receive(ctx context.Context, id string, reqs []driver.Request, f func() []driver.Answer) ([]driver.Answer, error) {
	var mu sync.Mutex
	var results []driver.Answer
	write := l.note(callOf(ctx), id, reqs[0])
	err := l.send(ctx, func() {
		decided := f()
		l.mu.Lock()
		if write.done.IsZero() {
			write.done = time.Now()
		}
		l.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		results = decided
	})
	l.mu.Lock()
	write.answered = write.answered || err == nil
	l.mu.Unlock()
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return nil, err
	}
	return results, nil
}

// note notes that a request is sent. A write that is repeated is one write.
func (l *link) note(call uint64, id string, req driver.Request) *simWrite {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &simWrite{id: id, units: req.Cost, sent: time.Now()}
	name := l.process + req.Key
	if i := slices.IndexFunc(l.writes[name], func(w *simWrite) bool { return id != "" && w.id == id }); i >= 0 {
		return l.writes[name][i]
	}
	if call == 0 && req.Cost > 0 {
		l.writes[name] = append(l.writes[name], w)
	}
	return w
}
