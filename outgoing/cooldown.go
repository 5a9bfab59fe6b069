package outgoing

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// coolDowns are the buckets that must be left alone for a while. They are in the store, so that every
// process sees them, and here, so that this process keeps to them without asking.
//
// A cool-down of d is one charge, under a key of its own, whose units are d in half milliseconds; the last
// half is there when the length was guessed, see [coolDowns.grown]. A look at a window gives the age of the
// newest charge, as what is missing from its reset; its units say how long it lasts:
//
//	remaining = units of the newest charge / 2 - its age
//
// Both are on the store's clock, so that clocks of processes do not matter. Only the newest charge counts: one
// that would not end later than what is there is not made.
type coolDowns struct {
	store   driver.Store
	options sash.Options
	all     *sash.Limiter // over as long as a cool-down is remembered
	longest time.Duration

	mu     sync.Mutex
	spells *memory[string, spell] // guarded by mu
}

// A spell is a cool-down of a bucket, the last one. It is remembered until its end is as long ago as it
// lasted, ten seconds at least.
type spell struct {
	lasts, left time.Duration // left is negative after its end
	guessed     bool
	end         time.Time // when this process knows of it
	served      bool      // the API has served a request of this process that was sent after the end
}

func newCoolDowns(store driver.Store, prefix string, longest time.Duration) (*coolDowns, error) {
	c := &coolDowns{store: store, longest: longest, spells: newMemory[string](spell.forgotten)}
	// Charges are merged in steps, because their units are more than a log has entries.
	step := (c.widest().Window/90_000 + time.Millisecond).Truncate(time.Millisecond)
	c.options = sash.Options{Prefix: prefix + "/cool-down", Algorithm: sash.SlidingBuckets, Resolution: step}
	var err error
	c.all, err = sash.New(store, &c.options, c.widest())
	return c, err
}

func (s spell) remembered() time.Duration { return max(s.lasts, 10*time.Second) }

func (s spell) forgotten(now time.Time) bool { return !s.end.Add(s.remembered()).After(now) }

func (c *coolDowns) widest() sash.Limit {
	return sash.Every(sash.MaxUnits, c.longest+spell{lasts: c.longest}.remembered())
}

// remaining returns how long a bucket has to be left alone; zero when it can be used.
func (c *coolDowns) remaining(ctx context.Context, key string) (time.Duration, error) {
	if s := c.known(key); s.left > 0 {
		return s.left, nil
	}
	s, err := c.stored(ctx, key)
	c.keep(key, s)
	return max(s.left, 0), err
}

// stored returns a bucket's last cool-down by what the store knows.
func (c *coolDowns) stored(ctx context.Context, key string) (spell, error) {
	charges, err := look(ctx, c.all, key)
	if err != nil || charges.units == 0 {
		return spell{}, err
	}
	units := charges.units
	if charges.several {
		// Ask for the newest alone. The slack is for the time that has passed since the first look.
		if charges.age+c.slack() >= c.widest().Window {
			return spell{}, nil
		}
		recent, err := sash.New(c.store, &c.options, sash.Every(sash.MaxUnits, (charges.age+c.slack()).Truncate(time.Millisecond)))
		if err != nil {
			return spell{}, err
		}
		newest, err := look(ctx, recent, key)
		if err != nil {
			return spell{}, err
		}
		if newest.units > 0 {
			units = newest.units
		}
	}
	s := spell{lasts: c.longest, guessed: units%2 == 1}
	if halves := c.longest.Milliseconds() * 2; units < halves {
		s.lasts = time.Duration(units/2) * time.Millisecond
	}
	s.left = s.lasts - charges.age
	return s, nil
}

// charges are what a window holds of a bucket's cool-downs.
type charges struct {
	units   int64         // of all in the window
	age     time.Duration // of the newest
	several bool
}

func look(ctx context.Context, limiter *sash.Limiter, key string) (charges, error) {
	res, err := limiter.Peek(ctx, key)
	if err != nil {
		return charges{}, err
	}
	limits := res.Limits()
	if !counts(res) || len(limits) == 0 {
		return charges{}, nil
	}
	seen := limits[0]
	return charges{
		units:   sash.MaxUnits - seen.Remaining,
		age:     seen.Limit.Window - seen.ResetAfter,
		several: seen.ReleaseAfter != seen.ResetAfter,
	}, nil
}

// begin makes a cool-down, here and in the store, unless one is there that ends as late. It returns how
// long the bucket has to be left alone; when the length is guessed that can be longer than d.
//
// Workers that are refused together bring nearly the same one, and all find nothing in the store when they
// look. Charges that readers cannot tell apart would add up, so one is refused that comes too soon after
// another. Then it is tried again, as long as it would end later than what is there, and until ctx ends.
func (c *coolDowns) begin(ctx context.Context, key string, d time.Duration, guessed bool) (time.Duration, error) {
	d = min(d, c.longest)
	here := c.known(key)
	if !guessed {
		c.keep(key, spell{lasts: d, left: d})
	}
	there, err := c.stored(ctx, key)
	if guessed {
		last := there
		if here.lasts > 0 && (there.lasts == 0 || here.left > there.left) {
			last = here // this process knows better
		}
		if last.guessed && last.left > 0 {
			c.keep(key, last)
			return last.left, err // a request that was sent before: the same refusal
		}
		d = c.grown(d, last, here)
		c.keep(key, spell{lasts: d, left: d, guessed: true})
	}
	if err != nil {
		return max(d, there.left), err
	}
	return max(d, there.left), c.charge(ctx, key, time.Now().Add(d), there, guessed)
}

// charge puts a cool-down into the store, unless what is there ends as late.
func (c *coolDowns) charge(ctx context.Context, key string, end time.Time, there spell, guessed bool) error {
	for {
		d := time.Until(end)
		if d <= 0 || there.left > 0 && d <= there.left+c.options.Resolution {
			return nil
		}
		units := max(d.Milliseconds(), 1) * 2
		if guessed {
			units++
		}
		apart := 2 * c.slack()
		short := d < 2*apart // it may follow another that has ended just before
		if short {
			apart = max(d/2, c.options.Resolution).Truncate(time.Millisecond)
		}
		limits := []sash.Limit{sash.Every(units+units/2, apart), c.widest()}
		res, err := c.all.AllowAll(ctx, sash.Subject{Key: key, Cost: units, Limits: limits})
		if err != nil || res.Allowed || short || !counts(res) {
			return err
		}
		if err := sleep(ctx, res.RetryAfter); err != nil {
			return err
		}
		if there, err = c.stored(ctx, key); err != nil {
			return err
		}
	}
}

// grown returns how long a cool-down is for which the API gave no time. When the last one was guessed too, is
// remembered, and the API has served nothing of this process since, it was too short: the next is twice as
// long, less up to a tenth at random. What other processes were served is not known, only what they were
// refused, because of which they made the last one.
func (c *coolDowns) grown(d time.Duration, last, here spell) time.Duration {
	ago := -last.left
	if !last.guessed || ago >= last.remembered() || here.served && ago > -here.left-c.slack() {
		return d
	}
	d = min(max(2*last.lasts, d), c.longest)
	return (d - time.Duration(rand.Int64N(int64(d/10)+1))).Truncate(time.Millisecond)
}

// served notes that the API has served a request that was sent then.
func (c *coolDowns) served(key string, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.spells.get(key); ok && !s.served && !sent.Before(s.end) {
		s.served = true
		c.spells.set(key, s, time.Now())
	}
}

// slack is the time that may pass between two looks: charges that are so close are not told apart.
func (c *coolDowns) slack() time.Duration { return max(c.options.Resolution, 100*time.Millisecond) }

// known returns a bucket's last cool-down by what this process knows.
func (c *coolDowns) known(key string) spell {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.spells.get(key)
	if ok {
		s.left = time.Until(s.end)
	}
	return s
}

// keep remembers a cool-down in this process, unless a later one is known. Of one that has ended, the store
// knows the end less well than who has kept to it.
func (c *coolDowns) keep(key string, s spell) {
	now := time.Now()
	s.end = now.Add(s.left)
	if s.lasts == 0 || s.forgotten(now) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there, ok := c.spells.get(key)
	if !ok || s.left > 0 && s.end.After(there.end) || s.end.After(there.end.Add(c.slack())) {
		c.spells.set(key, s, now)
	}
}
