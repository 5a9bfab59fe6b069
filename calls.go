package sash

import (
	"context"
	"fmt"

	"example.com/sash/driver"
)

// AllowUpTo requests as many units as fit now: cost, or fewer, but at least one. Result.Charged says how many were
// charged. It is one decision, so concurrent callers share what remains, and no limit is exceeded. It suits batches:
//
//	res, err := limiter.AllowUpTo(ctx, key, int64(len(items)))
//	...
//	send(items[:res.Charged])
//
// A cost above the limits takes what they hold. A refusal means that not one unit fits, and its RetryAfter is the time until one does.
//
// Errors are those of AllowN, but for [ErrCostAboveLimit], and [ErrUnsupported].
func (l *Limiter) AllowUpTo(ctx context.Context, key string, cost int64) (Result, error) {
	cost = min(cost, l.policy.MostUnits())
	c, err := l.adjustment("AllowUpTo", key, cost)
	if err != nil {
		return Result{}, err
	}
	c.Partial = true
	res, err := l.one(ctx, c)
	if err == nil && (res.Charged > cost || res.Allowed != (res.Charged > 0)) {
		err = fmt.Errorf("driver: the store charged %d of up to %d units, allowed %v", res.Charged, cost, res.Allowed)
		res, err = Result{}, storeError(ctx, err)
	}
	return res, err
}

// Penalize charges units whether or not there is room: 1 to [MaxUnits], also more than a limit. It suits calls known to be
// bad, such as a wrong password. Nothing is admitted until enough units have left, which takes one window at most. The
// Result is that of a Peek afterwards by a limiter without a Block.
//
// Errors are those of AllowN, but for [ErrCostAboveLimit], and [ErrUnsupported].
func (l *Limiter) Penalize(ctx context.Context, key string, units int64) (Result, error) {
	c, err := l.adjustment("Penalize", key, units)
	if err != nil {
		return Result{}, err
	}
	forced := l.policy.Policy
	forced.CountRefused, forced.Block = true, driver.Block{}
	c.Policy, c.Forced = &forced, true
	return l.one(ctx, c)
}

// Reward gives back units that no particular reservation holds, such as after a correct password: 1 to [MaxUnits]. It takes them from the
// oldest charges that still count, also of reservations, but none from bookings ahead. A charge that has lost units to a Reward can no
// longer be settled to less, unless charges share an entry: under calendar limits alone, and within a step of SlidingBuckets.
// Result.Charged is how many units were given back: no more than are charged, and on Redis those of at most
// 1,000 charges. Otherwise the Result is that of a Peek afterwards by a limiter without a Block.
//
// Refusals that other processes keep in memory hold for up to a second more (see package stack). If the answer is lost, the units may
// have been given back, and repeating the call would give back more. Errors are those of AllowN, but for [ErrCostAboveLimit], and
// [ErrUnsupported], also for a limiter that charges refused calls.
func (l *Limiter) Reward(ctx context.Context, key string, units int64) (Result, error) {
	if l.policy.CountRefused {
		return Result{}, countRefusedError{"Reward"}
	}
	c, err := l.adjustment("Reward", key, units)
	if err != nil {
		return Result{}, err
	}
	c.kind = driver.GiveBack
	res, err := l.one(ctx, c)
	l.queues.give(c.Key, gap{units: res.Charged}, err == nil)
	if err == nil && (res.Charged < 0 || res.Charged > units) {
		res, err = Result{}, storeError(ctx, fmt.Errorf("driver: the store gave back %d of up to %d units", res.Charged, units))
	}
	return res, err
}

func (l *Limiter) adjustment(name, key string, units int64) (call, error) {
	if l.store.Powers()&driver.CanTake == 0 {
		return call{}, fmt.Errorf("%w: %s needs a store with driver.CanTake", ErrUnsupported, name)
	}
	if units < 1 || units > MaxUnits {
		return call{}, fmt.Errorf("%w: %d units; there are 1 to %d", ErrInvalidCost, units, int64(MaxUnits))
	}
	key, err := l.key(key)
	return newCall(key, units, l.policy), err
}

// AllowOnce is AllowN for a call that may be repeated because its answer was lost. The ID names the call: 1 to [driver.MaxIDLength] bytes,
// such as the name of a job or a message. Repeated with the same ID and key within [driver.RepeatTime], an admitted call is admitted again
// and charges nothing, even with another cost or under other limits. Its Result has the At of the first call; all else is as of now.
//
//	res, err := limiter.AllowOnce(ctx, msg.ID, key, 1)
//	if errors.Is(err, sash.ErrUnavailable) {
//		res, err = limiter.AllowOnce(ctx, msg.ID, key, 1)
//	}
//
// A refusal is not remembered: a repeated call is decided anew. With Options.CountRefused a refusal is charged and remembered: retry it
// with another ID. The same ID on another key, or under another algorithm or resolution, is another call. A store remembers about 10,000
// IDs of a key at a time, on Redis about 600 unless it keeps a compact log. Beyond that it first forgets the IDs that would end first.
//
// Errors are those of AllowN, [ErrInvalidID], and [ErrUnsupported].
func (l *Limiter) AllowOnce(ctx context.Context, id, key string, cost int64) (Result, error) {
	if err := l.repeats(id); err != nil {
		return Result{}, err
	}
	c, err := l.call(key, cost)
	if err != nil {
		return Result{}, err
	}
	c.id = id
	return l.one(ctx, c)
}

func (l *Limiter) repeats(id string) error {
	switch {
	case l.store.Powers()&driver.CanID == 0:
		return fmt.Errorf("%w: the store remembers no IDs of calls", ErrUnsupported)
	case id == "":
		return fmt.Errorf("%w: it is empty, and every call would be taken for a repetition of the first", ErrInvalidID)
	case len(id) > driver.MaxIDLength:
		return fmt.Errorf("%w: %d bytes, more than %d; hash what is longer", ErrInvalidID, len(id), driver.MaxIDLength)
	}
	return nil
}
