package decide

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
)

// MaxIDLength is the most bytes of a request's ID. The ID that the store gets begins with a verb and units.
const MaxIDLength = driver.MaxIDLength - 28

// settleTime bounds a settlement whose caller may have left.
const settleTime = time.Second

var (
	// ErrCountsRefused means that a rule charges refused requests, so that its charges cannot be settled.
	ErrCountsRefused = errors.New("a rule with count_refused takes no reservations")
	// ErrKept means that a reservation cannot be settled here: its estimate stays charged until it leaves.
	ErrKept = errors.New("the reservation cannot be settled here")
)

// A Reservation is a charge that every process on the same store can settle. It holds everything that this
// takes, so that no process has to remember it. The zero value is one of which nothing was charged.
type Reservation struct {
	// Domain is that of the request. Empty is not known: it was made by an earlier version.
	Domain string
	// Key is the subject.
	Key string
	// Units is what was charged. Zero is nothing, which every settlement leaves as it is.
	Units int64
	// At is the store's clock when it charged, or the later instant at which a booking is charged, and Delay how much
	// later.
	At    time.Time
	Delay time.Duration
	// Policy is the policy that limited the subject. It may have changed since.
	Policy *driver.Policy
	// Place is where the charge is kept.
	Place config.Place
	// Source is where the admission came from.
	Source sash.Source
	// ID names the settlement.
	ID string
	// Instance is the process that charged, where the store did not.
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

// Reserve is Decide for a request of one part whose cost is an estimate, which Settle corrects. A request that may go
// ahead comes with a reservation, also where nothing was charged; a refusal comes with nil. A caller who leaves
// before the answer is not charged, unless the request has an ID: see sash.Limiter.Reserve.
//
// Errors are those of Decide, and ErrCountsRefused.
func (d *Decider) Reserve(ctx context.Context, req Request) (Answer, *Reservation, error) {
	req.reserved = &Reservation{}
	answers, err := d.Decide(ctx, req)
	if err != nil {
		return Answer{}, nil, err
	}
	if !answers[0].Allowed() {
		req.reserved = nil
	}
	return answers[0], req.reserved, nil
}

// ReserveAll is Decide for a request whose costs are estimates, each of which Settle corrects by the reservation of its part. A
// part that was not charged has a zero one. A refusal comes with none. Errors are those of Decide, and ErrCountsRefused.
func (d *Decider) ReserveAll(ctx context.Context, req Request) ([]Answer, []Reservation, error) {
	req.held = make([]Reservation, len(req.Parts))
	answers, err := d.Decide(ctx, req)
	if slices.ContainsFunc(answers, func(a Answer) bool { return !a.Allowed() }) {
		return answers, nil, err
	}
	return answers, req.held, err
}

// reserve charges a part, and fills in its reservation.
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
	if err := a.book(ctx, id); err != nil {
		return a.soften(err)
	}
	d.hold(req, a, name, req.reserved)
	return nil
}

// hold fills in the reservation of a part that was decided. By policy nothing is charged.
func (d *Decider) hold(req *Request, a *Answer, name string, into *Reservation) {
	if a.Refused || a.Source == sash.FromPolicy || a.limits == nil || a.limits.limiter == nil || a.need == 0 {
		return
	}
	*into = Reservation{
		Domain: req.Domain, Key: a.Key, Units: a.need, At: a.At, Delay: a.Delay, Policy: a.limits.limiter.Policy(), Place: a.limits.place,
		Source: a.Source, ID: settlementID(name, a.At),
	}
	if a.Source == sash.FromLocal && req.ID == "" {
		into.Instance = d.instance
	}
}

// chargeOnce charges a part whose request may be repeated.
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

// book reserves the units of a part, now or within its time, and with an ID if that is not empty.
func (a *Answer) book(ctx context.Context, id string) error {
	r, err := a.limits.limiter.Reserve(ctx, a.Key, a.need, &sash.ReserveOptions{WaitUpTo: a.within, ID: id})
	if err == nil {
		a.result(r.Result())
	}
	return err
}

// once returns the ID that the store gets for a request's. It has the units, because the store admits a repetition whatever
// they are: an ID that was charged for 1 would let 1,000 through. Such a request is a new one.
func (a *Answer) once(verb, id string) string {
	return verb + ":" + strconv.FormatInt(a.need, 10) + ":" + id
}

// settlementID names the settlement of a charge: the same for every answer to one request with an ID, and
// another one when that is charged again later.
func settlementID(name string, at time.Time) string {
	sum := sha256.Sum256([]byte(strconv.FormatInt(at.UnixMicro(), 10) + ":" + name))
	return hex.EncodeToString(sum[:16])
}

// Settle corrects the charge of a reservation to the units that were used: 0 to sash.MaxUnits, and 0 gives all of it
// back. The first settlement that reaches the store counts, and later ones do nothing. The store gets it also when ctx
// has ended. It goes by the limits that the reservation was made under.
//
// Errors are sash.ErrInvalidCost, ErrKept, and sash.ErrUnavailable, after which it can be settled again.
func (d *Decider) Settle(ctx context.Context, r *Reservation, used int64) error {
	if used < 0 || used > sash.MaxUnits {
		return fmt.Errorf("%w: %d units; used is 0 to %d", sash.ErrInvalidCost, used, int64(sash.MaxUnits))
	}
	if r.Units == 0 {
		return nil
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
	return nil
}
