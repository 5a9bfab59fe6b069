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

	mostSettled int

	mu      sync.Mutex
	debts   map[account]*debt  // guarded by mu: those that wait
	sent    map[*debt]struct{} // guarded by mu: one write, and calls, of which MaxInFlight are under way
	done    chan struct{}      // guarded by mu: closed when write has ended; nil if it does not run
	closed  bool               // guarded by mu: what is admitted from now on is lost
	settled map[string]int64   // guarded by mu: by ID of a settlement that was applied, when its charge leaves
	swept   time.Time          // guarded by mu: when settled was last searched for what has left
}

func newBacklog(l *ledger, mostSettled int) backlog {
	return backlog{
		ledger: l, mostSettled: mostSettled,
		debts: make(map[account]*debt), sent: make(map[*debt]struct{}), settled: make(map[string]int64),
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.lost.Add(req.Cost)
		return
	}
	b.owe(newDebt(id, req, at, delay))
}

// owe adds a debt to that of its account, but a call with an ID owes once, and gives up what there is no room for. The caller holds mu.
func (b *backlog) owe(d *debt) {
	switch since := b.debts[d.of]; {
	case len(d.leave) == 0, since != nil && d.of.id != "":
		return
	case since != nil:
		if len(since.leave) > 2*steps {
			since.drop()
		}
		for end, c := range d.leave {
			since.add(c, end)
		}
	case b.closed && b.done == nil || !b.room():
		b.giveUp(d)
		return
	default:
		if d.of.id != "" && d.began == 0 {
			d.began = time.Now().UnixMicro()
		}
		b.debts[d.of] = d
	}
	b.start()
}

// start writes the debts. The caller holds mu.
func (b *backlog) start() {
	if b.done == nil {
		b.done = make(chan struct{})
		go b.write(b.done)
	}
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
		if len(b.sent) == 0 {
			clear(b.settled)
		}
	}
	return account{}, nil, wait
}

// hurries reports whether an account's debt is due before it starts: at the end, or if the store forgets its ID. The caller holds mu.
func (b *backlog) hurries(of account) bool { return b.closed || of.id != "" }

// close loses what is admitted from now on, and returns what is closed when write has ended; nil if it does not run.
func (b *backlog) close() (done <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true // now everything is due
	return b.done
}

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

func (b *backlog) giveUp(d *debt) {
	if d.began != 0 {
		b.doubtful.Add(d.units())
	} else {
		b.lost.Add(d.units())
	}
}

// send notes that the store may be charging a debt from now on: it is being written, or is a call that was answered locally before the
// store did. Settlements find it meanwhile, and Reset comes after it. The caller holds mu.
func (b *backlog) send(d *debt) *debt {
	d.cost, d.over = min(d.units(), driver.MaxUnits), make(chan struct{})
	b.sent[d] = struct{}{}
	return d
}

// claim sends what is due of an account's debt. It returns nil if nothing is any more.
func (b *backlog) claim(of account) *debt {
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
	return b.send(due)
}

// call sends the debt of a call that was admitted locally. One with an ID owes nothing: its account does already.
func (b *backlog) call(id string, req driver.Request, at, delay int64) *debt {
	d := newDebt(id, req, at, delay)
	if id != "" {
		d.leave = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.send(d)
}

// A fate is what became of a debt that was sent.
type fate uint8

const (
	charged   fate = iota // by the store
	uncharged             // and owed as before
	unknown               // and not charged again
	repeated              // unknown, and owed under the ID with which it was sent
	rejected              // and lost
)

// land records the fate of a debt that was sent, which no settlement finds from now on. What Reset forgot is not owed again.
func (b *backlog) land(d *debt, f fate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	again := &debt{of: d.of, policy: d.policy, leave: d.leave, began: d.began}
	d.leave = nil
	switch {
	case f == charged:
		b.doubtful.Add(d.moved)
	case d.forgotten:
	case f == uncharged:
		b.owe(again)
	case f == unknown:
		b.doubtful.Add(max(d.cost, again.units()))
	case f == repeated:
		b.doubtful.Add(d.moved)
		again.of.id = d.id
		b.owe(again)
	case f == rejected:
		b.lost.Add(again.units())
	}
}

// end forgets a debt that has landed: the store has charged it, or never will.
func (b *backlog) end(d *debt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sent, d)
	close(d.over)
}
