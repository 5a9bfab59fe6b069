package outgoing

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A coolDown is the last cool-down of a bucket.
type coolDown struct {
	length, left time.Duration // left is negative after the end
	guessed      bool
	end          time.Time // on this process's clock
	answered     bool      // the API has served a request that this process sent after the end
}

// latency is the most by which two processes can differ about the end of a cool-down.
const latency = 100 * time.Millisecond

// kept is how long a cool-down is remembered after its end, here and in the store.
func (c coolDown) kept() time.Duration { return max(c.length, 10*time.Second) }

func (c coolDown) forgotten(now time.Time) bool { return !c.end.Add(c.kept()).After(now) }

// remaining returns how long no request may use a bucket. It is zero when the bucket can be used.
func (t *Transport) remaining(ctx context.Context, key string) (time.Duration, error) {
	if here := t.known.coolDown(key); here.left > 0 {
		return here.left, nil
	}
	there, err := t.inStore(ctx, key, driver.CoolDown{})
	t.known.cools(key, there)
	return max(there.left, 0), err
}

// afterwards returns a one-second context for what a request writes to the store. It does not end with the request's context.
func afterwards(req *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(req.Context()), time.Second)
}

// coolDown begins the cool-down that a response asks for, here and in the store, unless one that ends as late is there. It returns how
// long the bucket cools down; a guessed cool-down can be longer than wanted. If the store fails, only this process cools down.
func (t *Transport) coolDown(req *http.Request, key string, wanted pause) time.Duration {
	ctx, cancel := afterwards(req)
	defer cancel()
	d := min(wanted.length, t.opts.MaxCoolDown)
	if wanted.guessed {
		here := t.known.coolDown(key)
		if here.left <= 0 { // other calls wait while this one asks the store for the length of the last cool-down
			t.known.cools(key, coolDown{length: d, left: d, guessed: true})
		}
		last, _ := t.inStore(ctx, key, driver.CoolDown{})
		if here.length > 0 && (last.length == 0 || here.left > last.left) {
			last = here
		}
		if last.guessed && last.left > 0 { // the refused request was sent before this cool-down began
			t.known.cools(key, last)
			return last.left
		}
		d = t.grown(d, last, here)
	}
	t.known.cools(key, coolDown{length: d, left: d, guessed: wanted.guessed})
	there, _ := t.inStore(ctx, key, driver.CoolDown{Length: d.Microseconds(), Guessed: wanted.guessed})
	if there.left > d {
		t.known.cools(key, there)
	}
	return max(d, there.left)
}

// inStore begins a cool-down in the store and returns the one that applies there. With a Length of zero it only reads.
func (t *Transport) inStore(ctx context.Context, key string, begin driver.CoolDown) (coolDown, error) {
	if !t.cools {
		return coolDown{}, nil
	}
	there, err := t.cool(ctx, t.prefix+key, begin)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return coolDown{}, context.Cause(ctx)
	case t.at.Powers()&driver.Substitutes != 0: // the store's failure mode decides whether the call continues
		return coolDown{}, nil
	case errors.Is(err, sash.ErrUnavailable):
		return coolDown{}, err
	default:
		return coolDown{}, &sash.StoreError{Err: err}
	}
	return coolDown{
		length:  min(time.Duration(there.Length)*time.Microsecond, t.opts.MaxCoolDown),
		left:    min(time.Duration(there.Left)*time.Microsecond, t.opts.MaxCoolDown),
		guessed: there.Guessed,
	}, nil
}

func (t *Transport) cool(ctx context.Context, key string, begin driver.CoolDown) (driver.CoolDown, error) {
	of := driver.Settlement{Request: driver.Request{Key: key, Policy: noLimits}}
	b := driver.Batch{Ops: []driver.Op{{Kind: driver.Cool, Settlement: of, CoolDown: begin}}}
	err := t.at.Store.Do(ctx, &b)
	return b.Ops[0].CoolDown, err
}

var noLimits = new(driver.Policy)

// grown returns the length of a guessed cool-down. It is twice that of the last one, less up to a tenth at random, if that
// was also a guess, is not forgotten, and the API has served no request of this process since. Otherwise it is d.
func (t *Transport) grown(d time.Duration, last, here coolDown) time.Duration {
	ago := -last.left
	if !last.guessed || ago >= last.kept() || here.answered && ago > -here.left-latency {
		return d
	}
	d = min(max(2*last.length, d), t.opts.MaxCoolDown)
	return (d - time.Duration(rand.Int64N(int64(d/10)+1))).Truncate(time.Millisecond)
}

// served records that the API has served a request that was sent at the given time.
func (c *coolDown) served(sent time.Time) { c.answered = c.answered || !sent.Before(c.end) }

// coolDown returns a bucket's last cool-down that this process has seen.
func (c *buckets) coolDown(key string) coolDown {
	last, now := c.lock(key).cool, time.Now()
	c.mu.Unlock()
	if last.forgotten(now) {
		return coolDown{}
	}
	last.left = last.end.Sub(now)
	return last
}

// cools records a cool-down of a bucket, unless this process has seen a later one. Two past ends that differ by
// at most the latency belong to the same cool-down.
func (c *buckets) cools(key string, last coolDown) {
	now := time.Now()
	last.end = now.Add(last.left)
	if last.length == 0 || last.forgotten(now) {
		return
	}
	b := c.lock(key)
	defer c.mu.Unlock()
	if last.left > 0 && last.end.After(b.cool.end) || last.end.After(b.cool.end.Add(latency)) {
		b.cool = last
		b.keep(last.end.Add(last.kept()))
	}
}
