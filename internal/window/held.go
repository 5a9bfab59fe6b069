package window

import (
	"math"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// Leases are what a [Holder] keeps of a key: the leases, the last answer of the home, and the demand. The zero
// value has none. A clock that is set back to before the demand was last counted ends all leases.
type Leases struct {
	since, now, past int64 // the demand: now is the units since an instant, past those in a longest lease before it
	began            int64 // when the fetch in flight began, or 0
	until            int64 // no other caller starts a fetch before; with no fetch in flight, only a caller without units does
	down             int64 // no caller starts a fetch before, because the last one failed
	refusal          refusal
	rest             int64 // 1 more than the units that the home had left; 0 if unknown
	held             []held
	longest          int64
}

// A held is a lease.
type held struct {
	began        int64 // when the fetch that brought it began
	starts, ends int64
	left         int64
	brought      int64
	reply        string
}

const heldBytes = 56

// A refusal is a refusal by the home.
type refusal struct {
	until, cost, brought int64
	reply                string
}

// Take implements Spend of [Holder] at an instant of the holder's clock. It writes the answer to a, which saves a copy.
func (l *Leases) Take(now int64, s *Spending, a *Held) {
	*a = Held{At: now}
	if now < l.since {
		*l = Leases{} // the clock was set back: leases brought later than now could be spent too late
	}
	l.longest = s.Longest
	if !s.Again {
		l.count(now, s.Cost, s.Longest)
	}
	asked, want := max(l.past, l.now), l.want(now, s.Longest)
	h, coming := l.leases(now, s.Cost)
	if h != nil {
		h.left -= s.Cost
		a.Spent, a.Left, a.Reply, a.ReplyAge = true, h.left, h.reply, max(0, now-h.brought)
		if l.until <= now && l.down <= now && asked >= 2*s.Cost && l.low(now, s, want) {
			l.send(now, s, a, want)
		}
		return
	}
	if coming != nil {
		a.Refused, a.Reply, a.ReplyAge = coming.starts-now, coming.reply, max(0, now-coming.brought)
		return
	}
	switch r := &l.refusal; {
	case r.until > now && s.Cost >= r.cost:
		a.Refused, a.Reply, a.ReplyAge = r.until-now, r.reply, max(0, now-r.brought)
	case l.down > now:
		a.Down, a.Wait = true, l.down-now
	case l.until > now && l.began != 0:
		a.Wait = max(l.began+s.Way-now, s.Way/8, 1000)
	case asked < 2*s.Cost:
		a.Alone = true
	default:
		l.send(now, s, a, want)
	}
}

// count adds units to the demand, up to the most units of a limit. Every eighth of the longest lease it begins an interval,
// and records the demand of the previous interval, scaled to a whole longest lease.
func (l *Leases) count(now, units, longest int64) {
	switch passed := now - l.since; {
	case passed >= 2*longest:
		l.since, l.past, l.now = now, 0, 0
	case passed >= longest/8:
		l.since, l.past, l.now = now, rate(l.now, longest, passed), 0
	}
	l.now = min(l.now+units, driver.MaxUnits)
}

// want returns how many units callers request in a longest lease. If they have already requested more in this interval than past
// records, their demand has jumped.
func (l *Leases) want(now, longest int64) int64 {
	if l.now <= l.past {
		return l.past
	}
	return max(l.now, rate(l.now, longest, max(now-l.since, longest/32)))
}

// rate scales the units requested in a shorter time to a longest lease. The scripts compute the same.
func rate(units, longest, time int64) int64 {
	return int64(min(math.Floor(float64(units)*float64(longest)/float64(max(time, 1))), driver.MaxUnits))
}

// leases returns two leases with enough units for a cost: the one that ends first of those that can be spent now, and the one that
// starts first of those that start later. Each is nil if there is none.
func (l *Leases) leases(now, cost int64) (first, coming *held) {
	for i := range l.held {
		switch h := &l.held[i]; {
		case h.left < cost || h.ends <= now:
		case h.starts > now:
			if coming == nil || h.starts < coming.starts {
				coming = h
			}
		case first == nil || h.ends < first.ends:
			first = h
		}
	}
	return first, coming
}

// low reports whether the leases will be used up or over before a new one arrives, which takes two ways and the delay by the home as
// last time. It is false while a lease is booked: a key has one at a time.
func (l *Leases) low(now int64, s *Spending, want int64) bool {
	soon, left, delay := now+2*s.Way, int64(0), int64(0)
	for i := range l.held {
		h := &l.held[i]
		if h.starts > soon {
			return false
		}
		if h.ends > soon {
			left += h.left
		}
		if h.ends > now {
			delay = max(delay, h.starts-h.brought)
		}
	}
	return float64(left)*float64(s.Longest) < float64(2*s.Way+delay)*float64(want) // the scripts compute it in this way
}

// send has the caller fetch a lease.
func (l *Leases) send(now int64, s *Spending, a *Held, want int64) {
	l.began, l.until = now, now+s.Patience()
	a.Fetch, a.Rest = want, l.rest-1
}

// Bring implements [Holder] at an instant of the holder's clock. It keeps a lease only from the last fetch of the key: not after
// the key was forgotten, and not after another caller has started a fetch.
func (l *Leases) Bring(now int64, e *Fetch) (kept bool) {
	if e.Began != 0 && (e.Began != l.began || now < e.Began) {
		return false
	}
	if e.Began != 0 {
		l.began, l.until = 0, 0
	}
	l.longest, l.rest = e.Longest, e.Rest+1
	switch {
	case e.Units > 0:
		h := held{
			began: e.Began, starts: now + e.Delay + drift(e.Delay), ends: e.Began + e.Delay + e.Longest - drift(e.Delay+e.Longest),
			left: e.Units, brought: now, reply: e.Reply,
		}
		if e.Began == 0 || h.ends <= h.starts || !l.keep(now, h) {
			return false
		}
		l.refusal, l.down = refusal{}, 0
		return true
	case e.Refused > 0:
		began := e.Began
		if began == 0 {
			began = now
		}
		l.refusal = refusal{until: began + e.Refused, cost: e.RefusedCost, brought: now, reply: e.Reply}
		if e.Began != 0 {
			l.until = l.refusal.until
		}
	case e.Failed > 0:
		l.down = now + e.Failed
	}
	return false
}

// drift returns how much the holder's clock may gain or lose against the home's over a time: a 1,024th, rounded up. A lease
// starts later and ends earlier by that much than if both clocks ran alike.
func drift(time int64) int64 { return (time + 1023) / 1024 }

// keep adds a lease and drops leases that are no longer of use. If there are too many, the ended lease that ended first
// makes room. keep reports whether there was room. No two leases have the same fetch.
func (l *Leases) keep(now int64, h held) bool {
	l.held = slices.DeleteFunc(l.held, func(o held) bool { return o.left == 0 || o.ends+l.longest <= now })
	oldest := 0
	for i := range l.held {
		if l.held[i].began == h.began {
			return false
		}
		if l.held[i].ends < l.held[oldest].ends {
			oldest = i
		}
	}
	if len(l.held) >= threshold.Leases {
		if l.held[oldest].ends > now {
			return false
		}
		l.held = slices.Delete(l.held, oldest, oldest+1)
	}
	l.held = append(l.held, h)
	return true
}

// Return implements [Holder].
func (l *Leases) Return(began, keep int64) (units int64) {
	for i := range l.held {
		if h := &l.held[i]; h.began == began {
			units += max(0, h.left-keep)
			h.left = min(h.left, keep)
		}
	}
	return units
}

// Forget implements [Holder].
func (l *Leases) Forget() { *l = Leases{} }

// GrowsBy returns the most bytes by which a fetch makes leases grow.
func GrowsBy(e *Fetch) int { return threshold.Leases/2*heldBytes + len(e.Reply) }

// Bytes returns the bytes that the leases have allocated.
func (l *Leases) Bytes() int {
	n := heldBytes*cap(l.held) + len(l.refusal.reply)
	for i := range l.held {
		n += len(l.held[i].reply)
	}
	return n
}

// Expires returns the instant from which the leases can be dropped.
func (l *Leases) Expires() int64 {
	expires := max(l.since+2*l.longest, l.until, l.down, l.refusal.until)
	for i := range l.held {
		expires = max(expires, l.held[i].ends+l.longest)
	}
	return expires
}
