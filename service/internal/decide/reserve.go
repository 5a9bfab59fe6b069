package decide

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// MaxIDLength is the most bytes of a request's ID. In the store, the ID follows a verb and the units.
const MaxIDLength = driver.MaxIDLength - 28

// settleTime bounds a settlement whose caller may have left.
const settleTime = time.Second

var (
	// ErrCountsRefused means that a rule charges refused requests, so its charges cannot be settled.
	ErrCountsRefused = errors.New("a rule with count_refused takes no reservations, and cannot be one of several to choose from")
	// ErrKept means that a reservation cannot be settled or extended here: its charge stays until it leaves the window.
	ErrKept = errors.New("the reservation cannot be settled or extended here")
)

// A Reservation is a charge that every process on the same store can settle. It holds everything that a settlement
// takes, so no process has to remember it. The zero value is a reservation of nothing.
type Reservation struct {
	// Domain is the domain of the request. It is empty if nothing was charged, and for sash reserve.
	Domain string
	Key    string
	// Units is what was charged. If it is zero, settlements change nothing.
	Units int64
	// At is when the units were charged, on the store's clock; for a booking, its later instant. Delay is how much later.
	At    time.Time
	Delay time.Duration
	// Policy is the policy that limited the subject. It may have changed since.
	Policy *driver.Policy
	Place  config.Place
	Source sash.Source
	ID     string
	// Instance is the process that made the charge, if the store did not.
	Instance string
}

// Expires returns the instant, on the store's clock, from which the charge no longer counts.
func (r *Reservation) Expires() time.Time {
	set := r.settlement(0)
	return time.UnixMicro(set.Expires())
}

func (r *Reservation) settlement(used int64) driver.Settlement {
	req := driver.Request{Key: r.Key, Cost: r.Units, Policy: r.Policy}
	return driver.Settlement{Request: req, At: r.At.UnixMicro(), Delay: r.Delay.Microseconds(), Source: r.Source, Units: used, ID: r.ID}
}

// Reserve is ReserveAll for a request of one part. A refusal has a nil reservation. A caller that leaves before the
// answer is not charged, unless the request has an ID: see sash.Limiter.Reserve.
func (d *Decider) Reserve(ctx context.Context, req Request) (Answer, *Reservation, error) {
	answers, held, err := d.ReserveAll(ctx, req)
	switch {
	case err != nil:
		return Answer{}, nil, err
	case held == nil:
		return answers[0], nil, nil
	}
	return answers[0], &held[0], nil
}

// ReserveAll is Decide for a request whose costs are estimates. In a Lenient request only costs under rules that count tokens
// are estimates. Settle corrects each one by the reservation of its part. Other parts, and parts that were not charged, have
// a zero reservation. A refused request has no reservations. Errors are those of Decide, and ErrCountsRefused.
func (d *Decider) ReserveAll(ctx context.Context, req Request) ([]Answer, []Reservation, error) {
	req.held = make([]Reservation, len(req.Parts))
	answers, err := d.Decide(ctx, req)
	if err != nil || slices.ContainsFunc(answers, func(a Answer) bool { return !a.Allowed() }) {
		return answers, nil, err
	}
	return answers, req.held[:len(answers)], nil
}

func (d *Decider) reserve(ctx context.Context, req *Request, a *Answer) error {
	switch {
	case !a.Limited() || a.BannedBy != nil:
		return nil
	case a.never:
		return a.look(ctx)
	case a.limits.opts.CountRefused:
		return ErrCountsRefused
	}
	id, name := "", rand.Text()
	if req.ID != "" {
		id = a.once("reserve", req.ID)
		name = id
	}
	charge := func() error { return a.book(ctx, id) }
	if req.UpTo {
		charge = func() error { return a.fit(ctx) }
	}
	if err := charge(); err != nil {
		return a.soften(err)
	}
	d.hold(req, a, name, &req.held[0])
	return nil
}

// hold fills in the reservation of a part that was decided. An answer by policy has charged nothing.
func (d *Decider) hold(req *Request, a *Answer, name string, into *Reservation) {
	if a.Refused || a.Source == sash.FromPolicy || a.limits == nil || a.limits.limiter == nil || a.need == 0 {
		return
	}
	*into = Reservation{
		Domain: req.Domain, Key: a.Key, Units: a.need, At: a.At, Delay: a.Delay, Policy: a.limits.limiter.Policy(), Place: a.limits.place,
		Source: a.Source, ID: settlementID(a.At, name),
	}
	if a.Source == sash.FromLocal && req.ID == "" {
		into.Instance = d.instance
	}
}

// settlementID returns the same ID for every answer to a request with an ID, until that request is charged again or extended.
func settlementID(at time.Time, name string) string {
	sum := sha256.Sum256([]byte(strconv.FormatInt(at.UnixMicro(), 10) + ":" + name))
	return hex.EncodeToString(sum[:16])
}

func (a *Answer) chargeOnce(ctx context.Context, id string) error {
	switch {
	case !a.Limited():
		return nil
	case a.never:
		return a.alone(ctx, true)
	case a.within == 0:
		return a.soften(a.take(a.limits.limiter.AllowOnce(ctx, a.once("allow", id), a.Key, a.need)))
	}
	return a.soften(a.book(ctx, a.once("allow", id)))
}

// book reserves the units of a part, now or within the time that it may wait. An ID may be empty.
func (a *Answer) book(ctx context.Context, id string) error {
	r, err := a.limits.limiter.Reserve(ctx, a.Key, a.need, &sash.ReserveOptions{WaitUpTo: a.within, ID: id})
	if err == nil {
		a.result(r.Result())
	}
	return err
}

// TallyTime is the time that a Tally sums up. Each instance adds to the tally once in this time.
const TallyTime = 5 * time.Second

// A Tally is a sum beside a subject, to which all instances add. It limits nothing.
type Tally struct {
	limiter *sash.Limiter
	key     string
}

// Tally returns the tally of the subject of an answer, on its store.
func (d *Decider) Tally(a *Answer) (*Tally, error) {
	const step = TallyTime / 20 // units stay up to a step longer, and leave before their instance adds the next ones
	opts, limit := sash.Options{Algorithm: sash.SlidingBuckets, Resolution: step}, sash.Limit{Units: sash.MaxUnits, Window: TallyTime - step}
	l, err := d.compileLimits(config.Place{Global: a.limits.place.Global}, &opts, []sash.Limit{limit}, failover.Modes{})
	if err != nil {
		return nil, err
	}
	return &Tally{l.limiter, "tally:" + a.Key}, nil // no subject has that key: see config.CandidateKey
}

// Add adds to the tally, and returns the sum. Zero only looks.
func (t *Tally) Add(ctx context.Context, n int64) (sum int64, err error) {
	var res sash.Result
	if n > 0 {
		res, err = t.limiter.AllowN(ctx, t.key, n)
	} else {
		res, err = t.limiter.Peek(ctx, t.key)
	}
	if err != nil || len(res.Limits()) == 0 {
		return 0, cmp.Or(err, sash.ErrUnavailable)
	}
	return sash.MaxUnits - res.Limits()[0].Remaining, nil
}

// fit charges as many of the units as have room, and makes them the cost of the part.
func (a *Answer) fit(ctx context.Context) error {
	req := driver.Request{Key: a.Key, Cost: a.need, Policy: a.limits.limiter.Policy(), Partial: true, MaySettle: true}
	answer, err := driver.Decide(ctx, a.limits.store, req)
	if err != nil {
		return failure(ctx, err)
	}
	a.result(a.limits.limiter.Result(a.Key, answer))
	a.need, a.Cost = answer.Charged, max(1, answer.Charged) // a refusal is for one unit
	return nil
}

// once returns the ID under which the store knows a request. It contains the units, because the store admits a repetition
// whatever its units are: an ID that was charged for 1 would let 1,000 through. A request with other units is a new one.
func (a *Answer) once(verb, id string) string {
	return verb + ":" + strconv.FormatInt(a.need, 10) + ":" + id
}

// CheckUsed returns sash.ErrInvalidCost for units to which Settle cannot correct a charge.
func CheckUsed(used ...int64) error {
	for _, n := range used {
		if n < 0 || n > sash.MaxUnits {
			return fmt.Errorf("%w: %d units; used is 0 to %d", sash.ErrInvalidCost, n, int64(sash.MaxUnits))
		}
	}
	return nil
}

// Settle corrects the charge of a reservation to the units that were used: 0 to sash.MaxUnits, and 0 gives all of it
// back. The first settlement that reaches the store counts, and later ones do nothing. The store receives it even if
// ctx has ended, and applies the limits under which the reservation was made.
//
// Errors are sash.ErrInvalidCost, ErrKept, and sash.ErrUnavailable, after which the caller can settle it again.
func (d *Decider) Settle(ctx context.Context, r *Reservation, used int64) error {
	if err := CheckUsed(used); err != nil || r.Units == 0 {
		return err
	}
	if r.Source == sash.FromLocal && r.Instance != d.instance {
		return fmt.Errorf("%w: an instance made it alone while the store was unavailable, and only that one can settle it, "+
			"or none if it has an id; its estimate stays charged until it leaves", ErrKept)
	}
	store, err := d.stores(r.Place)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKept, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err := store.Do(ctx, &driver.Batch{Ops: []driver.Op{{Kind: driver.Settle, Settlement: r.settlement(used)}}}); err != nil {
		return failure(context.Background(), err) // the context outlives the caller: the error is the store's
	}
	d.queues.settled(place{failover.Client(ctx), r.Key}, r.ID, used, r.Units)
	return nil
}

// Extend charges what reservations hold anew, in one step, so that each counts for a whole window from now. A call in flight thus holds
// its slot for longer. If a charge has left or was given back, Extend reports false and changes nothing. Errors are sash.ErrUnavailable,
// and ErrKept for charges in several places, for bookings, and for charges that the store did not make or cannot extend.
func (d *Decider) Extend(ctx context.Context, held []Reservation) (bool, error) {
	var b driver.Batch
	var place config.Place
	var moved []*Reservation
	for i := range held {
		if r := &held[i]; r.Units > 0 {
			if r.Source == sash.FromLocal || r.Delay > 0 || len(moved) > 0 && r.Place != place {
				return false, fmt.Errorf("%w: it was booked ahead, was made while the store was unavailable, or is in several places", ErrKept)
			}
			op := driver.Op{Kind: driver.Extend, Settlement: r.settlement(0)}
			place = r.Place
			moved, b.Ops = append(moved, r), append(b.Ops, op)
		}
	}
	if len(moved) == 0 {
		return true, nil
	}
	store, err := d.stores(place)
	if err != nil || store.Powers()&driver.CanExtend == 0 {
		return false, fmt.Errorf("%w: its store does not extend it", ErrKept)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err = store.Do(ctx, &b)
	switch {
	case errors.Is(err, sash.ErrUnsupported), errors.Is(err, driver.ErrApart):
		return false, fmt.Errorf("%w: %w", ErrKept, err)
	case err != nil:
		return false, failure(context.Background(), err)
	}
	for i, r := range moved {
		r.At = time.UnixMicro(b.Ops[i].Answer.At)
		r.ID = settlementID(r.At, r.ID)
	}
	return b.Ops[0].Answer.At > 0, nil
}

// queues bound how much of each subject's queue the waiting bookings of one client hold: no more than the client
// leaves free, as conns.Share does. A booking counts as the time in which its units are free again at the rate of the
// limit. A process counts its own bookings. queues is safe for concurrent use; the zero value holds none.
type queues struct {
	mu   sync.Mutex
	held map[place]*waits // guarded by mu
	kept int              // guarded by mu: the length of held after the last sweep
}

const (
	mostPlaces = 100_000 // beyond this, a client has no share of a queue, and waits as long as the rule lets it
	steps      = 32      // of a queue: bookings that start in one step are counted together, until the last of them starts
)

type place struct{ client, subject string }

// waits are the bookings of one client for one subject: those that are asked for, and those that wait.
type waits struct {
	asked, sum time.Duration
	steps      []step // in the order of their ends; sum is the time of all
}

type step struct {
	ends time.Time
	time time.Duration
	ids  map[string]time.Duration // of its bookings with an ID, so that a repetition adds none
}

func (w *waits) leave(now time.Time) {
	for len(w.steps) > 0 && !w.steps[0].ends.After(now) {
		w.sum -= w.steps[0].time
		w.steps = w.steps[1:]
	}
}

// take adds a booking that a client asks for, and returns how far ahead it may be in a queue of this length.
func (q *queues) take(p place, booking, length time.Duration) (within time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, w := time.Now(), q.held[p]
	if w == nil {
		if q.held == nil || len(q.held) > 2*q.kept+1000 {
			q.sweep(now)
		}
		if len(q.held) >= mostPlaces {
			return length
		}
		w = &waits{}
		q.held[p] = w
	}
	w.leave(now)
	within = max(0, length-w.sum-w.asked)
	w.asked += booking
	return within
}

func (q *queues) sweep(now time.Time) {
	kept := make(map[place]*waits)
	for p, w := range q.held {
		if w.leave(now); w.asked+w.sum > 0 {
			kept[p] = w
		}
	}
	q.held, q.kept = kept, len(kept)
}

// taken records that the booking of a take starts after delay, perhaps with an ID. Zero means that it was not made or need not wait.
func (q *queues) taken(p place, id string, booking, length, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.held[p]
	if w == nil {
		return
	}
	w.asked = max(0, w.asked-booking)
	if delay == 0 || w.with(id) != nil {
		return
	}
	starts, last := time.Now().Add(delay), len(w.steps)-1
	if w.sum += booking; last >= 0 && !starts.After(w.steps[last].ends) {
		w.steps[last].time += booking
	} else {
		w.steps = append(w.steps, step{ends: starts.Add(length / steps), time: booking, ids: make(map[string]time.Duration)})
	}
	if id != "" {
		w.steps[len(w.steps)-1].ids[id] = booking
	}
}

func (w *waits) with(id string) *step {
	for i := range w.steps {
		if _, ok := w.steps[i].ids[id]; ok {
			return &w.steps[i]
		}
	}
	return nil
}

func (q *queues) settled(p place, id string, used, units int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.held[p]
	if w == nil || used >= units {
		return
	}
	if s := w.with(id); s != nil {
		unused := time.Duration(float64(s.ids[id]) * float64(units-used) / float64(units))
		s.ids[id] = 0 // the first settlement counts
		s.time -= unused
		w.sum -= unused
	}
}

// inQueue lets a part wait no longer than its client's share of the queue. The caller calls taken once there is an answer.
func (d *Decider) inQueue(ctx context.Context, req *Request, a *Answer) (taken func()) {
	p, booking := place{failover.Client(ctx), a.Key}, a.booking()
	a.within = min(a.within, d.queues.take(p, booking, a.queue))
	return func() {
		id := req.ID
		if req.held != nil {
			id = req.held[0].ID
		}
		d.queues.taken(p, id, booking, a.queue, a.Delay)
	}
}

func (a *Answer) booking() (longest time.Duration) {
	for _, l := range a.limits.named {
		window := cmp.Or(l.Window, a.queue)
		longest = max(longest, time.Duration(float64(window)*float64(a.need)/float64(l.Units)))
	}
	return longest
}
