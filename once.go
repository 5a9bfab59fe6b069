package sash

import (
	"context"
	"fmt"
	"time"

	"example.com/sash/driver"
)

// RepeatTime is how long a store remembers the ID of a call after it charged the call.
const RepeatTime = driver.RepeatTime

// AllowOnce is AllowN for a call that may be repeated because its answer was lost. The ID names the call: 1 to
// [MaxIDLength] bytes, chosen by the caller, such as the name of a job or a message. An admitted call is charged once:
// repeated with the same ID and key within [RepeatTime], it is admitted again and charges nothing, even with another cost
// or under other limits, and however often and concurrently it is repeated. The Result of a repetition has the At of the
// first, and what remains and the times to wait as of now.
//
//	res, err := limiter.AllowOnce(ctx, msg.ID, key, 1)
//	if errors.Is(err, sash.ErrUnavailable) {
//		res, err = limiter.AllowOnce(ctx, msg.ID, key, 1)
//	}
//
// A refusal charges nothing and is not remembered: a repeated call is decided anew, and may be admitted. With
// Options.CountRefused a refusal is charged and remembered: retry it with another ID. The same ID on another key, or
// under another algorithm or resolution, is another call. After RepeatTime or a Reset a call is charged again, like any
// new one. A store remembers about 10,000 IDs of a key at a time, on Redis about 600 unless it keeps a compact log.
// Beyond that it forgets some early, those that end first.
//
// Errors are those of AllowN, [ErrInvalidID], and [ErrUnsupported].
func (l *Limiter) AllowOnce(ctx context.Context, id, key string, cost int64) (Result, error) {
	c := newCall(key, cost, l.policy, false)
	return l.decideOnce(ctx, id, &c)
}

// decideOnce checks a call and its ID, adds the prefix to its key, and has the store decide it once.
func (l *Limiter) decideOnce(ctx context.Context, id string, c *call) (res Result, err error) {
	store, ok := driver.As[driver.Deduplicator](l.store)
	if !ok {
		return Result{}, fmt.Errorf("%w: the store remembers no IDs of calls", ErrUnsupported)
	}
	if id == "" {
		return Result{}, fmt.Errorf("%w: it is empty, and every call would be taken for a repetition of the first", ErrInvalidID)
	}
	if len(id) > MaxIDLength {
		return Result{}, fmt.Errorf("%w: %d bytes, more than %d; hash what is longer", ErrInvalidID, len(id), MaxIDLength)
	}
	if err := c.policy.checkCost(c.Cost); err != nil {
		return Result{}, err
	}
	key, err := l.ready(ctx, c.Key)
	if err != nil {
		return Result{}, err
	}
	c.Key = key
	if l.opts.Observer != nil {
		at := time.Now()
		defer func() { l.observe(ctx, at, []call{*c}, []Result{res}, err) }()
	}
	answer, err := store.DecideOnce(ctx, id, c.Request)
	if err == nil {
		err = answer.Check(c.Policy)
	}
	if err != nil {
		return Result{}, storeError(ctx, err)
	}
	return resultOf(key, c.policy, &answer), nil
}
