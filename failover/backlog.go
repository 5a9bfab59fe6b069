package failover

import (
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// Bounds of the backlogs of all parts together.
const (
	mostAccounts = 10_000  // the units of further accounts count as lost
	mostSettled  = 100_000 // IDs of settlements; the changes of further settlements count as doubtful
)

// visits is how many accounts a full backlog examines, while a caller waits, to find one that it can drop.
const visits = 100

// A ledger counts the accounts in the backlogs of all parts, and the units by their outcome.
type ledger struct {
	mostAccounts int64
	accounts     atomic.Int64

	written, lost, doubtful atomic.Int64 // units
}

// A backlog holds the local admissions on one part of the store that wait to be written to that part. A charge is
// dropped once it has left every window, because then the store would not count it either. A booking is written when it
// starts: the store charges as of now, so a queue of bookings written at once would fill one window and be missing from
// the next ones. While a backlog is not empty, one goroutine writes it.
type backlog struct {
	*ledger
	write func(done chan<- struct{}) // writes the debts, and closes done at its end

	mostSettled int

	mu      sync.Mutex
	debts   map[account]*debt  // guarded by mu: the debts that wait
	sent    map[*debt]struct{} // guarded by mu: the debt being written, and those of calls in flight
	done    chan struct{}      // guarded by mu: closed when write has ended; nil if it does not run
	closed  bool               // guarded by mu: later local admissions are lost
	settled map[string]int64   // guarded by mu: for each applied settlement's ID, when its charge leaves
	swept   time.Time          // guarded by mu: when settled was last cleared of charges that have left
}

func newBacklog(l *ledger, mostSettled int) backlog {
	return backlog{
		ledger: l, mostSettled: mostSettled,
		debts: make(map[account]*debt), sent: make(map[*debt]struct{}), settled: make(map[string]int64),
	}
}

// An account is a subject under some limits, or one call on a subject with an ID. Each set of limits has its own account,
// because a charge is written under the limits that admitted it: under a shorter window the store would forget it sooner.
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

// add records units that a call charged locally at an instant, which lies a delay ahead. The ID may be empty.
func (b *backlog) add(id string, req driver.Request, at, delay int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.lost.Add(req.Cost)
		return
	}
	b.owe(newDebt(id, req, at, delay))
}

// owe adds a debt to its account, or gives the debt up if there is no room. A call with an ID owes once. The caller holds mu.
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

// room counts another account, and reports whether there was room for it. If there is none, it visits a few accounts and
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

// next returns an account with units that are due, and the policy of its charges. If no account has any, the policy is nil,
// and wait is the time until one has. If wait is zero too, no debt is left and write has to end.
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

// hurries reports whether bookings are due before they start: after close, or because the store would forget their ID. The caller holds mu.
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

// send marks a debt that the store may charge from now on: either the debt is being written, or its call was answered locally before
// the store answered. Meanwhile settlements find the debt, and a Reset waits for it. The caller holds mu.
func (b *backlog) send(d *debt) *debt {
	d.cost, d.over = min(d.units(), driver.MaxUnits), make(chan struct{})
	b.sent[d] = struct{}{}
	return d
}

// claim sends the part of an account's debt that is due. It returns nil if nothing is due any more.
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

// call sends the debt of a call that was admitted locally. For a call with an ID the debt is empty: its account already owes the units.
func (b *backlog) call(id string, req driver.Request, at, delay int64) *debt {
	d := newDebt(id, req, at, delay)
	if id != "" {
		d.leave = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.send(d)
}

// A fate is the outcome of a debt that was sent.
type fate uint8

const (
	charged   fate = iota // by the store
	uncharged             // still owed
	unknown               // not charged again
	repeated              // unknown, and still owed under the ID with which it was sent
	rejected              // lost
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
