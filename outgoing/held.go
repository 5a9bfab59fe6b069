package outgoing

import (
	"context"
	"math"
	"net/http"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A refusal without fields may mean that one of the API's windows is full. Proxies and overloaded servers send such refusals too. So the
// first one only raises a suspicion: that the API's limit is the units that the store had counted, without the call's own. The
// documentation of the package describes how later refusals confirm it, under What it learns. A limit that was lowered wrongly soon rises
// again. If the API's limit is below the configured one, it refuses a few requests at first, and then at most one in three windows.
const (
	agreeing    = 8 // serving more than the suspected units, by more than this part of them, refutes a suspicion
	convincing  = 4
	heldPart    = 16 // of the window
	heldBriefly = 15 * time.Second
	heldLonger  = 4  // times, after a refusal while a level rises
	heldWindows = 12 // for a limit that the API states, see learn
	heldLeast   = time.Minute
	heldMost    = time.Hour
	lookAgain   = 10 * time.Second // the period after which a process looks for levels of others; it also looks after each cool-down
)

// holdFor returns how long a level is held: at least the given time, and at most an hour.
func holdFor(d, least time.Duration) time.Duration {
	return max(least, min(d, heldMost)).Truncate(time.Second)
}

// held returns a level that holds for the given time and rises in as long again.
func held(units int64, lasts time.Duration, now time.Time) level {
	return level{units: units, at: now.Add(lasts), span: lasts}
}

// since returns when a held level was learnt.
func (c level) since() time.Time { return c.at.Add(-c.span) }

// exceeds reports whether clearly more units went through than suspected, which requests that overtake each other do not explain.
func (c level) exceeds(through int64) bool { return through > c.units+c.units/agreeing }

// refused learns from a refusal and its cool-down. It returns the limit whose window is most likely full, with
// its level or suspicion. That is the limit with the smallest part left, among those whose windows are free by
// the end of the cool-down. It learns nothing from a request that was sent before the last refusal.
func (c *buckets) refused(call Call, counted []sash.LimitResult, wanted pause, sent, now time.Time) (l sash.Limit, low level, ok bool) {
	full, least, used := -1, 2.0, int64(0)
	for i, l := range call.Limits {
		u := usedOf(counted[i])
		free := wanted.guessed || wanted.length <= l.Window+time.Second // by then, if this window is full
		if left := float64(l.Units-u) / float64(l.Units); l.Window > 0 && free && left < least {
			full, least, used = i, left, u
		}
	}
	if full < 0 {
		return l, low, false // the reset of a calendar limit is known, and ends the cool-down
	}
	l = call.Limits[full]
	b := c.lock(call.Key)
	defer c.mu.Unlock()
	learnt := b.known(l)
	known, ok := learnt.held, !learnt.held.risen(now)
	if ok && sent.Before(known.since()) {
		return l, low, false
	}
	// The first refused requests may have arrived too early, so the level is at most three quarters of the limit. The
	// next refusal within the window halves it. If less than a quarter went through, the refusal has another reason.
	through, most, fewest, lasts := used-call.Cost, l.Units*3/4, l.Units/4, holdFor(l.Window/heldPart, heldBriefly)
	believed := !wanted.guessed && wanted.length > time.Second && wanted.length >= l.Window/convincing
	switch {
	case !ok:
	case !known.suspected:
		believed, most, fewest, lasts = true, known.now(l, now), known.units/2, known.span
		if !now.Before(known.at) {
			lasts = min(heldLonger*lasts, holdFor(2*l.Window, heldLeast))
		}
	case !known.exceeds(through):
		believed, most, fewest = true, min(most, known.units), min(fewest, known.units/2)
	}
	if ok && believed && now.Sub(known.since()) < l.Window && most > l.Units/2 { // most of what went through is older than the level
		most /= 2
	}
	low = held(max(min(through, most), call.Cost), (lasts + wanted.length).Truncate(time.Second), now)
	low.paced = true
	if low.suspected = !believed; low.suspected {
		low.units = through
	}
	if through < max(fewest, 1) || low.units >= l.Units {
		return l, low, false
	}
	learnt.held = low
	b.learn(l, learnt, now)
	return l, low, true
}

func usedOf(counted sash.LimitResult) int64 { return counted.Limit.Units - counted.Remaining }

// served records that the API has served a call, and drops the suspicions that the call refutes. Counted is nil
// if the store did not count the call.
func (c *buckets) served(call Call, counted []sash.LimitResult, sent time.Time) {
	if call.Account != "" {
		c.lock(call.Account).cool.served(sent)
		c.mu.Unlock()
	}
	b := c.lock(call.Key)
	defer c.mu.Unlock()
	b.cool.served(sent)
	for i := range counted {
		l, used := call.Limits[i], usedOf(counted[i])
		known := b.known(l)
		suspected := known.held.suspected && !known.held.risen(sent) && !sent.Before(known.held.since())
		if suspected && (used == l.Units || known.held.exceeds(used-call.Cost)) {
			known.held = level{}
			b.learn(l, known, sent)
		}
	}
}

// guessed reports whether refusals have lowered a limit of the bucket, or raised a suspicion. Its requests are
// then paced, so that few are in flight when the next refusal comes.
func (b *bucket) guessed(limits []driver.Limit, now time.Time) (lowered, suspected bool) {
	for _, l := range limits {
		low := b.known(sash.Limit{Window: time.Duration(l.Window) * time.Microsecond, Period: l.Period}).held
		if low.paced && !low.risen(now) {
			lowered, suspected = lowered || !low.suspected, suspected || low.suspected
		}
	}
	return lowered, suspected
}

// hold holds a limit at a level if that is lower or if none is held, and reports whether the limit is now lower.
func (b *bucket) hold(l sash.Limit, low level, now time.Time) bool {
	known := b.known(l)
	there := !known.held.risen(now)
	lower := !low.suspected && (!known.held.lowers(now) || low.now(l, now) < known.held.now(l, now))
	if lower || !there {
		known.held = low
		b.learn(l, known, now)
	}
	return lower
}

// lowered reports whether a limit is lower than when the call was booked.
func (c *buckets) lowered(admitted *admission) bool {
	now, call := time.Now(), &admitted.call
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, s := range call.subjects() {
		booked := admitted.place.Parts[n].Result().Limits()
		for i, whole := range s.Limits[:min(len(s.Limits), len(booked))] {
			held := c.at(s.Key, now).known(whole).held
			if held.lowers(now) && share(held.now(whole, now), call.percent(n)) < booked[i].Limit.Units {
				return true
			}
		}
	}
	return false
}

// The store keeps a level for other processes as a cool-down under its own key, and a suspicion as a guessed cool-down. The whole
// seconds of its length are the length of the level. The remaining microseconds are the level in millionths of the limit.
const millionths = 1_000_000

func (t *Transport) levelKey(key string, l sash.Limit) string {
	return t.prefix + sash.Key("level", key, driver.FormatWindow(l.Window))
}

// readLevel returns the level in the store, if there is one.
func (t *Transport) readLevel(ctx context.Context, key string, l sash.Limit, now time.Time) (low level, ok bool) {
	if !t.cools || l.Window == 0 {
		return low, false
	}
	there, err := t.cool(ctx, t.levelKey(key, l), driver.CoolDown{})
	if err != nil || there.Left <= 0 {
		return low, false
	}
	part := there.Length % millionths
	low.units = max(int64(math.Round(float64(part)*float64(l.Units)/millionths)), 1)
	low.paced, low.suspected = true, there.Guessed
	low.at, low.span = now.Add(time.Duration(there.Left)*time.Microsecond), time.Duration(there.Length-part)*time.Microsecond
	if !low.suspected {
		low.span /= 2
		low.at = low.at.Add(-low.span)
	}
	return low, true
}

// learnFull learns from an unexplained refusal that a window is full, and writes this to the store for the
// other processes. If the store fails, each process learns from its own refusals.
func (t *Transport) learnFull(req *http.Request, call Call, counted []sash.LimitResult, wanted pause, sent, now time.Time) {
	l, low, ok := t.known.refused(call, counted, wanted, sent, now)
	if !ok || !t.cools {
		return
	}
	ctx, cancel := afterwards(req)
	defer cancel()
	part := min(int64(math.Round(float64(low.units)*millionths/float64(l.Units))), millionths-1)
	length := low.ends().Sub(low.since()).Microseconds() + part
	_, _ = t.cool(ctx, t.levelKey(call.Key, l), driver.CoolDown{Length: length, Guessed: low.suspected})
}

// listen looks in the store for levels that other processes have learnt, and reports whether one is lower than this process knew.
// A look after the charge delays the request. So a booked call looks only after a cool-down, and other calls look regularly.
func (t *Transport) listen(ctx context.Context, subjects []sash.Subject, regularly bool) (lower bool) {
	for _, s := range subjects {
		began := time.Now()
		b := t.known.lock(s.Key)
		cooled := !b.cool.end.After(began) && !b.cool.end.Before(b.looked)
		look := cooled || regularly && began.Sub(b.looked) >= lookAgain
		t.known.mu.Unlock()
		if !look {
			continue
		}
		for _, l := range s.Limits {
			now := time.Now()
			if low, ok := t.readLevel(ctx, s.Key, l, now); ok {
				lower = t.known.lock(s.Key).hold(l, low, now) || lower
				t.known.mu.Unlock()
			}
		}
		t.known.lock(s.Key).looked = began // set last: until then other calls look too, and none starts without these levels
		t.known.mu.Unlock()
	}
	return lower
}
