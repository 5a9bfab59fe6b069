package outgoing

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// coolDowns are the buckets to leave alone for a while. The store keeps them for all processes. This process remembers what it has seen.
type coolDowns struct {
	store   driver.Store // nil when the store keeps none
	lenient bool         // a failed look does not fail the call
	prefix  string
	longest time.Duration
	known   *buckets
}

// A coolDown is the last cool-down of a bucket.
type coolDown struct {
	length, left time.Duration // left is negative after the end
	guessed      bool
	end          time.Time // on this process's clock
	answered     bool      // the API has served a request of this process that was sent after the end
}

// latency is by how much two processes can differ on the end of a cool-down.
const latency = 100 * time.Millisecond

func newCoolDowns(store driver.Store, prefix string, longest time.Duration, known *buckets) *coolDowns {
	c := &coolDowns{prefix: prefix, longest: longest, known: known}
	if store.Powers()&driver.CanCool != 0 {
		c.store = store
	}
	// A store that stands in for another decides by its failure mode whether the call goes on.
	c.lenient = store.Powers()&driver.Substitutes != 0
	return c
}

// kept is how long a cool-down is remembered after its end, here as in the store.
func (c coolDown) kept() time.Duration { return max(c.length, 10*time.Second) }

func (c coolDown) forgotten(now time.Time) bool { return !c.end.Add(c.kept()).After(now) }

// remaining returns how long a bucket has to be left alone; zero when it can be used.
func (c *coolDowns) remaining(ctx context.Context, key string) (time.Duration, error) {
	if here := c.here(key); here.left > 0 {
		return here.left, nil
	}
	there, err := c.inStore(ctx, key, driver.CoolDown{})
	c.remember(key, there)
	return max(there.left, 0), err
}

// begin begins a cool-down, here and in the store, unless there is one that ends as late. It returns how long the bucket has to be left
// alone; a guessed cool-down can be longer than d. With an error the cool-down holds in this process alone.
func (c *coolDowns) begin(ctx context.Context, key string, d time.Duration, guessed bool) (time.Duration, error) {
	d = min(d, c.longest)
	if guessed {
		here := c.here(key)
		if here.left <= 0 { // others hold back while the store is asked how long the last one was
			c.remember(key, coolDown{length: d, left: d, guessed: true})
		}
		last, err := c.inStore(ctx, key, driver.CoolDown{})
		if here.length > 0 && (last.length == 0 || here.left > last.left) {
			last = here
		}
		if last.guessed && last.left > 0 { // the refused request was sent before this cool-down began
			c.remember(key, last)
			return last.left, err
		}
		d = c.grown(d, last, here)
	}
	c.remember(key, coolDown{length: d, left: d, guessed: guessed})
	there, err := c.inStore(ctx, key, driver.CoolDown{Length: d.Microseconds(), Guessed: guessed})
	if there.left > d {
		c.remember(key, there)
	}
	return max(d, there.left), err
}

// inStore begins a cool-down in the store and returns the one that holds there. A Length of zero only looks.
func (c *coolDowns) inStore(ctx context.Context, key string, begin driver.CoolDown) (coolDown, error) {
	if c.store == nil {
		return coolDown{}, nil
	}
	there, err := c.cool(ctx, c.prefix+key, begin)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return coolDown{}, context.Cause(ctx)
	case c.lenient:
		return coolDown{}, nil
	case errors.Is(err, sash.ErrUnavailable):
		return coolDown{}, err
	default:
		return coolDown{}, &sash.StoreError{Err: err}
	}
	return coolDown{
		length:  min(time.Duration(there.Length)*time.Microsecond, c.longest),
		left:    min(time.Duration(there.Left)*time.Microsecond, c.longest),
		guessed: there.Guessed,
	}, nil
}

func (c *coolDowns) cool(ctx context.Context, key string, begin driver.CoolDown) (driver.CoolDown, error) {
	of := driver.Settlement{Request: driver.Request{Key: key, Policy: noLimits}}
	b := driver.Batch{Ops: []driver.Op{{Kind: driver.Cool, Settlement: of, CoolDown: begin}}}
	err := c.store.Do(ctx, &b)
	return b.Ops[0].CoolDown, err
}

var noLimits = new(driver.Policy)

// grown returns the length of a cool-down for which the API gave no time. The last one was too short if its length was a guess too, it is
// not forgotten, and the API has served no request of this process since: then the next is twice as long, less up to a tenth at random.
func (c *coolDowns) grown(d time.Duration, last, here coolDown) time.Duration {
	ago := -last.left
	if !last.guessed || ago >= last.kept() || here.answered && ago > -here.left-latency {
		return d
	}
	d = min(max(2*last.length, d), c.longest)
	return (d - time.Duration(rand.Int64N(int64(d/10)+1))).Truncate(time.Millisecond)
}

// served records that the API has served a request that was sent at a time.
func (c *coolDown) served(sent time.Time) { c.answered = c.answered || !sent.Before(c.end) }

// here returns a bucket's last cool-down as far as this process has seen it.
func (c *coolDowns) here(key string) coolDown {
	last, now := c.known.lock(key).cool, time.Now()
	c.known.mu.Unlock()
	if last.forgotten(now) {
		return coolDown{}
	}
	last.left = last.end.Sub(now)
	return last
}

// remember records a cool-down in this process, unless it has seen a later one. Two ends in the past within
// the latency are of the same cool-down.
func (c *coolDowns) remember(key string, last coolDown) {
	now := time.Now()
	last.end = now.Add(last.left)
	if last.length == 0 || last.forgotten(now) {
		return
	}
	b := c.known.lock(key)
	defer c.known.mu.Unlock()
	if last.left > 0 && last.end.After(b.cool.end) || last.end.After(b.cool.end.Add(latency)) {
		b.cool = last
		b.keep(last.end.Add(last.kept()))
	}
}
