package decide

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/verdict"
)

// MaxIDLength is the most bytes of an ID. The store's has what was asked before it: a verb, a number of limits,
// and units.
const MaxIDLength = sash.MaxIDLength - 28

var (
	// ErrCountsRefused means that a rule charges refused requests, so that its charges cannot be settled.
	ErrCountsRefused = errors.New("a rule with count_refused takes no reservations")
	// ErrKept means that a reservation cannot be settled here: its estimate stays charged until it leaves.
	ErrKept = errors.New("the reservation cannot be settled here")
)

// A Reservation is a charge that can be settled by every process on the same store. It holds all that this
// takes, so that no process has to remember it. The zero value is one of which nothing was charged.
type Reservation struct {
	// Key is the subject.
	Key string
	// Units is what was charged. Zero is nothing, which every settlement leaves as it is.
	Units int64
	// At is the store's clock when it charged.
	At time.Time
	// Policy is what the subject was held to. It may have changed since.
	Policy *driver.Policy
	// Source is who charged.
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
	return driver.Settlement{Request: req, At: r.At.UnixMicro(), Source: r.Source, Units: used, ID: r.ID}
}

// Reserve is Decide for a request whose cost is an estimate, which Settle corrects. What was let through
// comes with a reservation, also where nothing was charged; what was refused with nil. A caller who leaves
// while it is decided is not charged, unless he gives an ID: see sash.Limiter.Reserve.
//
// The ID is that of DecideOnce; the same one with another cost is another request. Errors are those of
// Decide, and ErrCountsRefused.
func (d *Decider) Reserve(ctx context.Context, id, domain string, entries []config.Entry, cost *int64) (verdict.Verdict, *Reservation, error) {
	reserved := &Reservation{}
	v, err := d.observed(ctx, domain, entries, cost, func(h hold, a *Answer) (verdict.Verdict, error) {
		if a.Rule.Options.CountRefused {
			return verdict.Verdict{}, ErrCountsRefused
		}
		req := driver.Request{Key: a.Key, Cost: a.Units, Policy: h.policy, MaySettle: true}
		var res sash.Result
		var err error
		var name string
		if id == "" {
			name = rand.Text()
			res, err = d.reserve(ctx, h.limiter, req)
		} else {
			name = nameOf("reserve", h.limits, a.Units) + id
			res, err = d.reserveOnce(ctx, name, h.limiter, a.Rule, req)
		}
		if err != nil {
			return verdict.Verdict{}, err
		}
		a.tell(res)
		if res.Allowed && res.Source != sash.FromPolicy { // by policy nothing is charged
			reserved = &Reservation{Key: req.Key, Units: req.Cost, At: res.At, Policy: req.Policy, Source: res.Source}
			reserved.ID = settlementID(name, res.At)
			if res.Source == sash.FromLocal && id == "" {
				reserved.Instance = d.instance
			}
		}
		return verdict.Of(res), nil
	})
	if err != nil || !v.Allowed {
		return v, nil, err
	}
	return v, reserved, nil
}

func (d *Decider) reserve(ctx context.Context, limiter *sash.Limiter, req driver.Request) (sash.Result, error) {
	r, err := limiter.Reserve(ctx, req.Key, req.Cost)
	if err != nil {
		return sash.Result{}, err
	}
	return r.Result(), nil
}

// reserveOnce charges a request that may be settled, and may be repeated. The name has its cost: a settlement
// must know what was charged, and the answer to a repetition would not tell.
func (d *Decider) reserveOnce(ctx context.Context, name string, limiter *sash.Limiter, rule *config.Rule, req driver.Request) (sash.Result, error) {
	store, err := storeOf(d.store, rule)
	if err != nil {
		return sash.Result{}, err
	}
	once, ok := store.(driver.Deduplicator)
	if !ok {
		return sash.Result{}, fmt.Errorf("%w: an ID", sash.ErrUnsupported)
	}
	answer, err := once.DecideOnce(ctx, name, req)
	if err != nil {
		return sash.Result{}, failure(ctx, err)
	}
	return limiter.Result(req.Key, answer), nil
}

// settlementID names the settlement of a charge: the same for every answer to one call with an ID, and
// another one when that is charged again later.
func settlementID(name string, at time.Time) string {
	sum := sha256.Sum256([]byte(strconv.FormatInt(at.UnixMicro(), 10) + ":" + name))
	return hex.EncodeToString(sum[:16])
}

// Settle says what a reservation was worth: 0 to sash.MaxUnits, and 0 gives all of it back. The first
// settlement that reaches the store counts, and later ones do nothing. The store is told also when ctx has
// ended. It goes by the limits that the reservation was made under.
//
// Errors are sash.ErrInvalidCost, ErrKept, and sash.ErrUnavailable, after which it can be settled again.
func (d *Decider) Settle(ctx context.Context, r *Reservation, used int64) error {
	if used < 0 || used > sash.MaxUnits {
		return fmt.Errorf("%w: %d units; a reservation is worth 0 to %d", sash.ErrInvalidCost, used, int64(sash.MaxUnits))
	}
	if r.Units == 0 {
		return nil
	}
	if r.Source == sash.FromLocal && r.Instance != d.instance {
		return fmt.Errorf("%w: an instance made it alone while the store was unavailable, and only that one can settle it, "+
			"or none if it has an id; its estimate stays charged until it leaves", ErrKept)
	}
	settler, ok := d.store.(driver.Settler)
	if !ok {
		return fmt.Errorf("%w: a settlement", sash.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := settler.Settle(ctx, r.settlement(used)); err != nil {
		return failure(context.Background(), err) // the store's failure, whatever became of the caller
	}
	return nil
}
