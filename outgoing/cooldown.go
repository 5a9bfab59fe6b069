package outgoing

import (
	"context"
	"sync"
	"time"

	"example.com/sash"
)

// coolDowns are the buckets that must be left alone for a while. They are in the store, so that every
// process sees them, and here, so that this process keeps to them without asking.
//
// A cool-down of d is one charge, under a key of its own, whose units are d in milliseconds. A look at
// the window of the longest possible cool-down gives the age of the newest charge, as what is missing
// from its reset; its units say how long it lasts:
//
//	remaining = units of the newest charge - its age
//
// Both are on the store's clock, so that clocks of processes do not matter. Only the newest charge counts: one
// that would not end later than what is there is not made.
type coolDowns struct {
	store   sash.Store
	options sash.Options
	all     *sash.Limiter // over the longest cool-down
	longest time.Duration

	mu   sync.Mutex
	ends map[string]time.Time // guarded by mu
}

func newCoolDowns(store sash.Store, prefix string, longest time.Duration) (*coolDowns, error) {
	c := &coolDowns{store: store, longest: longest, ends: make(map[string]time.Time)}
	// Charges are merged in steps, because their units are more than a log has entries.
	step := (longest/90_000 + time.Millisecond).Truncate(time.Millisecond)
	c.options = sash.Options{Prefix: prefix + "/cool-down", Algorithm: sash.SlidingBuckets, Resolution: step}
	var err error
	c.all, err = sash.New(store, &c.options, c.widest())
	return c, err
}

func (c *coolDowns) widest() sash.Limit { return sash.Every(sash.MaxUnits, c.longest) }

// remaining returns how long a bucket has to be left alone; zero when it can be used.
func (c *coolDowns) remaining(ctx context.Context, key string) (time.Duration, error) {
	if d := c.known(key); d > 0 {
		return d, nil
	}
	d, err := c.stored(ctx, key)
	c.keep(key, d)
	return d, err
}

// stored returns how long a bucket has to be left alone by what the store knows.
func (c *coolDowns) stored(ctx context.Context, key string) (time.Duration, error) {
	charges, err := look(ctx, c.all, key)
	if err != nil || charges.units == 0 {
		return 0, err
	}
	lasts := charges.units
	if charges.several {
		// Ask for the newest alone. The slack is for the time that has passed since the first look.
		if charges.age+c.slack() >= c.longest {
			return 0, nil
		}
		recent, err := sash.New(c.store, &c.options, sash.Every(sash.MaxUnits, (charges.age+c.slack()).Truncate(time.Millisecond)))
		if err != nil {
			return 0, err
		}
		newest, err := look(ctx, recent, key)
		if err != nil {
			return 0, err
		}
		if newest.units > 0 {
			lasts = newest.units
		}
	}
	return max(min(lasts, c.longest)-charges.age, 0), nil
}

// charges are what a window holds of a bucket's cool-downs.
type charges struct {
	units   time.Duration // of all in the window
	age     time.Duration // of the newest
	several bool
}

func look(ctx context.Context, limiter *sash.Limiter, key string) (charges, error) {
	res, err := limiter.Peek(ctx, key)
	if err != nil {
		return charges{}, err
	}
	seen := res.Limits()[0]
	return charges{
		units:   time.Duration(min(sash.MaxUnits-seen.Remaining, sash.MaxWindow.Milliseconds())) * time.Millisecond,
		age:     seen.Limit.Window - seen.ResetAfter,
		several: seen.ReleaseAfter != seen.ResetAfter,
	}, nil
}

// begin makes a cool-down, here and in the store, unless one is there that ends as late.
//
// Workers that are refused together bring nearly the same one, and all find nothing in the store when they
// look. Charges that readers cannot tell apart would add up, so one is refused that comes too soon after
// another. Then it is tried again, as long as it would end later than what is there, and until ctx ends.
func (c *coolDowns) begin(ctx context.Context, key string, d time.Duration) error {
	end := time.Now().Add(min(d, c.longest))
	c.keep(key, time.Until(end))
	apart := sash.Every(1, max(2*c.slack(), time.Millisecond))
	for {
		there, err := c.stored(ctx, key)
		if d = time.Until(end); err != nil || d <= 0 || there > 0 && d <= there+c.options.Resolution {
			return err
		}
		apart.Units = max(d.Milliseconds(), 2)
		if d < 2*apart.Window { // a short one may follow another that has ended
			apart.Window = max(d/2, c.options.Resolution).Truncate(time.Millisecond)
		}
		res, err := c.all.AllowAll(ctx, sash.Subject{Key: key, Cost: apart.Units, Limits: []sash.Limit{apart, c.widest()}})
		if err != nil || res.Allowed {
			return err
		}
		if err := sleep(ctx, res.RetryAfter); err != nil {
			return err
		}
	}
}

// slack is the time that may pass between two looks: charges that are so close are not told apart.
func (c *coolDowns) slack() time.Duration { return max(c.options.Resolution, 100*time.Millisecond) }

func (c *coolDowns) known(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.ends[key])
}

// keep remembers a cool-down in this process, unless a later one is known.
func (c *coolDowns) keep(key string, d time.Duration) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ends) >= 1024 {
		for k, end := range c.ends {
			if !end.After(now) {
				delete(c.ends, k)
			}
		}
	}
	if end := now.Add(d); d > 0 && end.After(c.ends[key]) {
		c.ends[key] = end
	}
}
