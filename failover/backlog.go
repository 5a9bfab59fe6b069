package failover

import (
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/internal/window"
)

// Bounds of the backlog.
const (
	mostSubjects = 10_000 // units of further ones are lost, and counted
	mostCalls    = 10_000 // with an ID, likewise
	steps        = 8      // parts of the longest window in which charges of a subject are added up
)

// A backlog is what was admitted locally and the store does not know of, subject by subject. A charge is
// dropped when it has left every window: then it does not matter to the store either.
type backlog struct {
	size atomic.Int64 // of subjects and calls

	mu       sync.Mutex
	subjects map[subject]*debt // guarded by mu
	calls    map[call]due      // guarded by mu: those that have an ID
	paying   bool              // guarded by mu: a goroutine empties it
	pause    time.Duration     // guarded by mu: the last pause after a payment that failed; 0 after one that did not
	until    time.Time         // guarded by mu: end of the pause
}

// A subject is a key under an algorithm and its resolution, which do not share a count.
type subject struct {
	key        string
	algorithm  sash.Algorithm
	resolution time.Duration
}

func subjectOf(key string, policy *sash.Policy) subject {
	return subject{key, policy.Algorithm(), policy.Resolution()}
}

// A debt is what one subject was charged locally.
type debt struct {
	policy  *sash.Policy // the last that it was charged under
	charges []localCharge
	settled map[string]bool // what was settled since
}

// A due is something to charge to the store: a call with an ID, or else what a subject owes.
type due struct {
	id  string
	at  time.Time // of a call
	req sash.Request
	d   *debt // of a subject
}

// A localCharge is the units of some charges, dated to the latest of them.
type localCharge struct {
	first, last time.Time
	units       int64
}

// add notes units that were charged locally. It returns the units that there was no room for.
func (b *backlog) add(req sash.Request, at time.Time) (lost int64) {
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
	d.add(localCharge{at, at, req.Cost})
	return 0
}

// debt returns a request's debt, made if need be, or nil where there is no room. The caller holds mu.
func (b *backlog) debt(req sash.Request) *debt {
	name := subjectOf(req.Key, req.Policy)
	d := b.subjects[name]
	if d == nil {
		if len(b.subjects) >= mostSubjects {
			return nil
		}
		d = &debt{policy: req.Policy}
		b.subjects[name] = d
		b.count()
	}
	return d
}

// count keeps the size. The caller holds mu.
func (b *backlog) count() { b.size.Store(int64(len(b.subjects) + len(b.calls))) }

// add puts a charge with the last one when they are close. What has left goes now and then.
func (d *debt) add(c localCharge) {
	if n := len(d.charges); n > 0 && d.joins(d.charges[n-1], c) {
		last := &d.charges[n-1]
		last.units += c.units
		if c.last.After(last.last) {
			last.last = c.last
		}
		return
	}
	if len(d.charges) > 2*steps {
		d.drop(c.last)
	}
	d.charges = append(d.charges, c)
}

// joins reports whether two charges leave at about the same time: not when a calendar period ends between
// them.
func (d *debt) joins(a, b localCharge) bool {
	windows := d.policy.Windows()
	for _, w := range windows {
		if cut, _ := w.Cut(b.last.UnixMicro()); w.Period != 0 && a.first.UnixMicro() <= cut {
			return false
		}
	}
	step := time.Duration(window.Keep(windows)/steps) * time.Microsecond
	return b.last.Sub(a.first).Abs() <= step
}

// drop forgets what no limit counts any more.
func (d *debt) drop(now time.Time) {
	kept := d.charges[:0]
	for _, c := range d.charges {
		if counts(d.policy, c.last, now) {
			kept = append(kept, c)
		}
	}
	d.charges = kept
}

// counts reports whether any limit still counts what was charged at an instant.
func counts(policy *sash.Policy, at, now time.Time) bool {
	for _, w := range policy.Windows() {
		if cut, _ := w.Cut(now.UnixMicro()); at.UnixMicro() > cut {
			return true
		}
	}
	return false
}

// start reports whether there is something to charge and nobody does it yet; then the caller does.
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

// rest ends what start began, and nothing starts for a while: between half and all of a pause that doubles
// with each failure. Random is at least 0 and below 1.
func (b *backlog) rest(random float64) {
	b.mu.Lock()
	b.paying = false
	b.pause = min(longestPause, max(firstPause, 2*b.pause))
	b.until = time.Now().Add(b.pause/2 + time.Duration(random*float64(b.pause/2)))
	b.mu.Unlock()
}

// calm takes note of a payment that did not fail.
func (b *backlog) calm() {
	b.mu.Lock()
	b.pause = 0
	b.mu.Unlock()
}

// take removes a call, or a subject, and returns what it owes. It returns false, and has stopped, when there
// is none.
func (b *backlog) take() (due, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for of, d := range b.calls {
		delete(b.calls, of)
		b.count()
		if counts(d.req.Policy, d.at, now) {
			return d, true
		}
	}
	for name, d := range b.subjects {
		delete(b.subjects, name)
		b.count()
		d.drop(now)
		req := sash.Request{Key: name.key, Policy: d.policy}
		for _, c := range d.charges {
			req.Cost += c.units
		}
		if req.Cost > 0 {
			return due{req: req, d: d}, true
		}
	}
	b.paying = false
	return due{}, false
}

// putBack returns what was taken and not charged. It returns the units that there is no room for.
func (b *backlog) putBack(of due) (lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.debt(of.req)
	if now == nil {
		return of.req.Cost
	}
	now.charges = append(of.d.charges, now.charges...)
	return 0
}

// correct follows a local charge that was settled. What the store knows already cannot be made less; it
// leaves by itself.
func (b *backlog) correct(set sash.Settlement) {
	req := set.Request
	more := set.Units - req.Cost
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.subjects[subjectOf(req.Key, req.Policy)]
	if d == nil && more > 0 {
		d = b.debt(req)
	}
	if d == nil || d.settled[set.ID] {
		return
	}
	if set.ID != "" {
		if d.settled == nil {
			d.settled = make(map[string]bool)
		}
		d.settled[set.ID] = true
	}
	if more > 0 {
		d.add(localCharge{set.Result.At, set.Result.At, more})
	}
	for i := len(d.charges) - 1; i >= 0 && more < 0; i-- {
		less := min(-more, d.charges[i].units)
		d.charges[i].units -= less
		more += less
	}
}

// forget drops a subject.
func (b *backlog) forget(key string, policy *sash.Policy) {
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
