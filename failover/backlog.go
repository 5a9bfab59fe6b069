package failover

import (
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// Bounds of the backlog.
const (
	mostSubjects = 10_000 // the units of further subjects are lost, and counted
	mostCalls    = 10_000 // calls with an ID, likewise
	atOnce       = 100    // subjects and calls to visit while others wait for the lock
)

// A backlog holds the charges of local admissions that are waiting to be written to the store, by subject. A charge
// is dropped once it has left every window, because then the store would not count it either.
type backlog struct {
	size atomic.Int64 // of subjects and calls

	mu       sync.Mutex
	subjects map[subject]*debt // guarded by mu
	calls    map[call]due      // guarded by mu: the calls with an ID
	settled  settlements       // guarded by mu
	paying   bool              // guarded by mu: a goroutine writes the backlog to the store
	pause    time.Duration     // guarded by mu: the last pause after a failed write; 0 after a successful one
	until    time.Time         // guarded by mu: end of the pause
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

// A due is one charge to write to the store: a call with an ID, or all that a subject owes.
type due struct {
	id  string
	at  int64 // of a call
	req driver.Request
	d   *debt // of a subject
}

// add records units that were charged locally. It returns the units that there was no room for.
func (b *backlog) add(req driver.Request, at int64) (lost int64) {
	if req.Cost == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.debt(req)
	if d == nil {
		return req.Cost
	}
	d.policy = req.Policy
	d.add(req.Cost, end(req.Policy, at), time.Now().UnixMicro())
	return 0
}

// debt returns the debt of a request's subject and creates it if needed; nil if there is no room. The caller holds mu.
func (b *backlog) debt(req driver.Request) *debt {
	name := subjectOf(req.Key, req.Policy)
	d := b.subjects[name]
	if d == nil {
		if len(b.subjects) >= mostSubjects && !b.makeRoom() {
			return nil
		}
		d = &debt{policy: req.Policy, units: make(map[int64]int64)}
		b.subjects[name] = d
		b.count()
	}
	return d
}

// count updates the size. The caller holds mu.
func (b *backlog) count() { b.size.Store(int64(len(b.subjects) + len(b.calls))) }

// makeRoom visits a few subjects and drops those whose charges have all left. The caller holds mu.
func (b *backlog) makeRoom() (made bool) {
	now, tries := time.Now().UnixMicro(), 0
	for name, d := range b.subjects {
		if d.drop(now); len(d.units) == 0 {
			delete(b.subjects, name)
			made = true
		}
		if tries++; tries == atOnce {
			break
		}
	}
	return made
}

// start reports whether the caller has to write the backlog: it is not empty, and no other goroutine writes it.
func (b *backlog) start() bool {
	if b.size.Load() == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paying || len(b.subjects)+len(b.calls) == 0 || time.Now().Before(b.until) {
		return false
	}
	b.paying = true
	return true
}

// stop ends what start began.
func (b *backlog) stop() {
	b.mu.Lock()
	b.paying = false
	b.mu.Unlock()
}

// rest ends what start began and blocks the next start for between half and all of a pause, which doubles with each
// failure. random is in [0, 1).
func (b *backlog) rest(random float64) {
	b.mu.Lock()
	b.paying = false
	b.pause = min(longestPause, max(firstPause, 2*b.pause))
	b.until = time.Now().Add(b.pause/2 + time.Duration(random*float64(b.pause/2)))
	b.mu.Unlock()
}

// calm resets the pause after a successful write.
func (b *backlog) calm() {
	b.mu.Lock()
	b.pause = 0
	b.mu.Unlock()
}

// take removes a call or a subject and returns what it owes. If there is none it stops, and returns false.
func (b *backlog) take() (due, bool) {
	for {
		if d, found, more := b.look(); found || !more {
			return d, found
		}
	}
}

// look visits a few calls and subjects. It removes the first that owes units and returns it, and drops those that owe
// nothing any more.
func (b *backlog) look() (d due, found, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.count()
	now, tries := time.Now().UnixMicro(), 0
	for of, d := range b.calls {
		delete(b.calls, of)
		if end(d.req.Policy, d.at) > now {
			return d, true, true
		}
		if tries++; tries == atOnce {
			return due{}, false, true
		}
	}
	for name, d := range b.subjects {
		delete(b.subjects, name)
		d.drop(now)
		if units := d.sum(); units > 0 {
			return due{req: driver.Request{Key: name.key, Policy: d.policy, Cost: units}, d: d}, true, true
		}
		if tries++; tries == atOnce {
			return due{}, false, true
		}
	}
	b.paying = false
	return due{}, false, false
}

// putBack restores a due that was taken and not charged. It returns the units that there is no room for.
func (b *backlog) putBack(of due) (lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.debt(of.req)
	if d == nil {
		return of.req.Cost
	}
	for end, units := range of.d.units {
		d.units[end] += units
	}
	return 0
}

// correct applies the settlement of a local charge to the backlog, once for each ID. Units that were already written
// to the store cannot be taken back; they leave the window by themselves. It returns the units that there was no room
// for.
func (b *backlog) correct(set driver.Settlement) (lost int64) {
	req, at, now := set.Request, set.At, time.Now().UnixMicro()
	leaves, more := end(req.Policy, at), set.Units-req.Cost
	if leaves <= now {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.settled.first(set.ID, now, leaves) {
		return 0
	}
	if more > 0 {
		d := b.debt(req)
		if d == nil {
			return more
		}
		d.add(more, leaves, now)
	} else if d := b.subjects[subjectOf(req.Key, req.Policy)]; d != nil {
		d.remove(-more, leaves)
	}
	return 0
}

// forget drops a subject.
func (b *backlog) forget(key string, policy *driver.Policy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := subjectOf(key, policy)
	delete(b.subjects, name)
	for of := range b.calls {
		if of.subject == name {
			delete(b.calls, of)
		}
	}
	b.count()
}
