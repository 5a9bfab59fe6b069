package failover

import (
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// Bounds of the backlogs of all parts together.
const (
	mostAccounts = 10_000  // the units of further accounts are lost, and counted
	mostSettled  = 100_000 // IDs of settlements; what further settlements change is doubtful, and counted
)

// visits is how many accounts are visited for one that can be forgotten, while a caller waits.
const visits = 100

// A ledger counts what the backlogs of all parts hold, and what became of it.
type ledger struct {
	mostAccounts int64
	accounts     atomic.Int64

	written, lost, doubtful atomic.Int64 // units
}

// A backlog holds the local admissions on one part of the store that are waiting to be written to it. A charge is
// dropped once it has left every window, because then the store would not count it either. A booking is written when it
// starts: the store charges as of now, and a queue that is written at once would fill one window and be missing in those
// that follow. While a backlog is not empty, one goroutine writes it.
type backlog struct {
	*ledger
	write func(done chan<- struct{}) // writes the debts, and closes done at its end
	wake  chan struct{}              // holds one element when write has to look again

	mostSettled int

	mu      sync.Mutex
	debts   map[account]*debt    // guarded by mu
	flights map[*flight]struct{} // guarded by mu: one write, and calls, of which MaxInFlight are under way
	done    chan struct{}        // guarded by mu: closed when write has ended; nil if it does not run
	closed  bool                 // guarded by mu: what is admitted from now on is lost
	settled map[string]int64     // guarded by mu: by ID of a settlement that was applied, when its charge leaves
	swept   time.Time            // guarded by mu: when settled was last searched for what has left
}

func newBacklog(l *ledger, mostSettled int) backlog {
	return backlog{
		ledger: l, wake: make(chan struct{}, 1), mostSettled: mostSettled,
		debts: make(map[account]*debt), flights: make(map[*flight]struct{}), settled: make(map[string]int64),
	}
}

// An account is a subject under some limits, or one call on it with an ID. Other limits have another account, because a
// charge is written under the limits that admitted it: under a shorter window the store would forget it sooner.
type account struct {
	subject
	limits string // empty for a call with an ID, which is charged once whatever the limits
	id     string
}

func accountOf(id, key string, policy *driver.Policy) account {
	of := account{subject: subjectOf(key, policy), id: id}
	if id == "" {
		for i := range policy.Limits { // a service makes a policy for each request
			of.limits += policy.Limits[i].String() + " "
		}
	}
	return of
}

// A subject is a key under an algorithm and a resolution. Each combination is counted apart.
type subject struct {
	key        string
	algorithm  driver.Algorithm
	resolution time.Duration
}

func subjectOf(key string, policy *driver.Policy) subject {
	return subject{key, policy.Algorithm, policy.Resolution}
}

// add records units that were charged locally at an instant, a delay ahead, of a call with an ID unless that is empty.
func (b *backlog) add(id string, req driver.Request, at, delay int64) {
	if req.Cost == 0 {
		return
	}
	of := accountOf(id, req.Key, req.Policy)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.put(of, req.Policy, newCharge(req.Cost, at, delay), end(req.Policy, at)) {
		b.lost.Add(req.Cost)
		return
	}
	b.start()
}

// start writes the debts. The caller holds mu.
func (b *backlog) start() {
	if b.done == nil {
		b.done = make(chan struct{})
		go b.write(b.done)
		return
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put adds a charge to the debt of an account, but a call with an ID owes its charge once. It reports whether there was
// room. The caller holds mu.
func (b *backlog) put(of account, policy *driver.Policy, c *charge, end int64) bool {
	d := b.debts[of]
	switch {
	case d == nil && !b.room():
		return false
	case d == nil:
		d = &debt{policy: policy, leave: make(map[int64]*charge)}
		if of.id != "" {
			d.sent = time.Now().UnixMicro()
		}
		b.debts[of] = d
	case of.id != "":
		return true
	case len(d.leave) > 2*steps:
		d.drop()
	}
	d.add(c, end)
	return true
}

// room counts another account, and reports whether there was room for it. Where there is none it visits a few accounts, and
// drops those whose charges have all left. The caller holds mu.
func (b *backlog) room() bool {
	if b.accounts.Add(1) <= b.mostAccounts {
		return true
	}
	tries := 0
	for of, d := range b.debts {
		if d.drop(); len(d.leave) == 0 {
			b.remove(of)
		}
		if tries++; tries == visits {
			break
		}
	}
	if b.accounts.Load() <= b.mostAccounts {
		return true
	}
	b.accounts.Add(-1)
	return false
}

// remove forgets an account. The caller holds mu.
func (b *backlog) remove(of account) {
	delete(b.debts, of)
	b.accounts.Add(-1)
}

// next returns an account with units that are due, and the policy of its charges. If there is none, the policy is nil,
// and wait is the time until there is one. If that is zero too, write has to end.
func (b *backlog) next() (of account, policy *driver.Policy, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, d := range b.debts {
		d.drop()
		due, owes := d.due()
		switch {
		case !owes:
			b.remove(of)
		case due <= 0 || b.hurries(of):
			return of, d.policy, 0
		case wait == 0 || due < wait:
			wait = due
		}
	}
	if wait == 0 {
		b.done = nil
		if len(b.flights) == 0 {
			clear(b.settled)
		}
	}
	return account{}, nil, wait
}

// hurries reports whether what an account owes is due before it starts: when the program ends, and for a call with an ID,
// which the store forgets. The caller holds mu.
func (b *backlog) hurries(of account) bool { return b.closed || of.id != "" }

// putBack restores a debt that was taken back and perhaps not charged.
func (b *backlog) putBack(of account, d *debt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := b.debts[of]
	switch {
	case since == nil && (b.closed && b.done == nil || !b.room()):
		b.giveUp(d)
		return
	case since == nil:
		b.debts[of] = d
	case of.id == "":
		for end, c := range d.leave {
			since.add(c, end)
		}
	default:
		return
	}
	b.start()
}

// close loses what is admitted from now on, and returns what is closed when write has ended; nil if it does not run.
func (b *backlog) close() (done <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.done != nil {
		b.start() // now everything is due
	}
	return b.done
}

// abandon gives up every debt.
func (b *backlog) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, d := range b.debts {
		d.drop()
		b.giveUp(d)
		b.remove(of)
	}
	b.done = nil
}

// giveUp counts a debt that will not be written any more.
func (b *backlog) giveUp(d *debt) {
	if d.sent != 0 {
		b.doubtful.Add(d.units())
	} else {
		b.lost.Add(d.units())
	}
}

// A flight is a charge that the store may be making now: a debt that is being written, or a call that was answered locally
// before the store did. Settlements find the debt meanwhile, and Reset comes after the flight.
type flight struct {
	of    account
	units int64         // that the store may charge
	over  chan struct{} // closed when the store cannot charge them any more

	debt      *debt // guarded by the backlog's mu, until it is taken back: then nil
	moved     int64 // guarded so too: by how much settlements changed the debt
	forgotten bool  // guarded so too: by Reset
}

// claim begins the flight of what is due of an account's debt. It returns nil if nothing is any more.
func (b *backlog) claim(of account) *flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.debts[of]
	if d == nil {
		return nil
	}
	d.drop()
	due := d.take(b.hurries(of))
	if len(d.leave) == 0 {
		b.remove(of)
	}
	if due.units() == 0 {
		return nil
	}
	return b.begin(&flight{of: of, units: min(due.units(), driver.MaxUnits), debt: due})
}

// call begins the flight of a call that was admitted locally at an instant, a delay ahead. It has a debt if it has no
// ID: with one the account owes it already.
func (b *backlog) call(id string, req driver.Request, at, delay int64) *flight {
	f := &flight{of: accountOf(id, req.Key, req.Policy), units: req.Cost}
	if id == "" {
		f.debt = &debt{policy: req.Policy, leave: map[int64]*charge{end(req.Policy, at): newCharge(req.Cost, at, delay)}}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begin(f)
}

// begin adds a flight. The caller holds mu.
func (b *backlog) begin(f *flight) *flight {
	f.over = make(chan struct{})
	b.flights[f] = struct{}{}
	return f
}

// takeBack returns a flight's debt, which no settlement finds from now on, or nil if Reset forgot it.
func (b *backlog) takeBack(f *flight) (d *debt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, f.debt = f.debt, nil
	if f.forgotten {
		return nil
	}
	return d
}

// end removes a flight: the store has charged it, or never will.
func (b *backlog) end(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.flights, f)
	close(f.over)
}
