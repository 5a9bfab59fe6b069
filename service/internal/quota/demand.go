package quota

import (
	"cmp"
	"context"
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// A demand is the demand of all streams for a subject. The mutex of the service guards it.
type demand struct {
	streams int     // that have a bucket for the subject
	rate    float64 // requests a second, of this instance
	all     float64 // of all instances, at the last look
	units   float64 // of the limit with the fewest units a second, which is the pace
	pace    float64
	rest    float64 // units left after the last decision
}

func (st *stream) open(key string, id *pb.BucketId, entries []config.Entry) {
	st.mu.Lock()
	defer st.mu.Unlock()
	d := cmp.Or(st.demands[key], &demand{})
	d.streams++
	st.demands[key], st.buckets[key] = d, &bucket{id: id, entries: entries, shared: d, used: time.Now()}
}

// forget removes a bucket. Its granted units count as spent.
func (st *stream) forget(key string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	b := st.buckets[key]
	delete(st.buckets, key)
	b.shared.rate -= b.rate
	if b.shared.streams--; b.shared.streams == 0 {
		delete(st.demands, key)
	}
}

// turn sets the rate of a bucket. The caller holds the mutex of shared.
func (b *bucket) turn(rate float64) {
	b.shared.rate += rate - b.rate
	b.rate = rate
}

// measure sets the rate of a bucket from the reported requests, and reports whether it is much higher than before.
func (st *stream) measure(b *bucket, now time.Time) (risen bool) {
	n, took := float64(b.requests), now.Sub(b.since).Seconds()
	if took < 1 {
		return false
	}
	rate := n / took
	if b.known { // a rate falls in steps; in a shortage, at once to what chance allows
		slow := (rate + b.rate) / 2
		if b.short {
			slow = min(slow, (n+2*math.Sqrt(n+1))/took)
		}
		rate = max(rate, slow)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	risen = !b.known || rate > 2*b.rate
	b.turn(rate)
	b.known, b.since, b.requests, b.unreported = true, now, 0, int64(math.Round(rate*decide.TallyTime.Seconds()))
	return risen
}

// share adds the demand of the last report to that of all instances. If there is not enough for all, it reads their demand.
func (st *stream) share(ctx context.Context, b *bucket) {
	if b.unreported == 0 && !b.short {
		return
	}
	sum, err := b.tally.Add(ctx, b.unreported)
	if b.unreported = 0; err != nil {
		return // the store is down, and renew learns it from the request for units
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	all := float64(sum) / decide.TallyTime.Seconds()
	b.shared.all = max(all, (all+b.shared.all)/2) // a report may be late
}

// wants returns how many units a bucket needs for a time, and its part of the units left, in proportion to its demand.
func (st *stream) wants(b *bucket, lasts time.Duration) (need, part float64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	d := b.shared
	if !b.known { // twice what the limit gives to each stream
		b.turn(2 * d.pace / float64(d.streams))
	}
	if b.rate == 0 {
		return 1, 1
	}
	all, expected := max(d.all, d.rate, b.rate), b.rate*lasts.Seconds()
	share, plenty := b.rate/all, d.pace/all // of the demand, and of the limit for the demand
	need = expected + min(2, max(0.2, 2*(plenty-1)))*math.Sqrt(expected)
	// A burst gets a part of the units that the demand leaves free. Units that it does not spend come back after a report.
	need = max(1, need, share*d.units*(1-1/plenty)/16)
	room := d.rest
	if plenty < 1 { // a shortage lasts, so spread the units, which come back a window later
		room /= 8
	}
	return need, max(0.01, share*max(room, 1.25*d.pace*lasts.Seconds()))
}

func (st *stream) learn(b *bucket, a *decide.Answer) {
	tightest, known := a.Tightest()
	if !known {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	d := b.shared
	d.rest, d.pace = float64(tightest.Remaining), math.Inf(1)
	for _, l := range a.Limits {
		if pace := float64(l.Limit.Units) / (l.Limit.Window + a.Lease()).Seconds(); pace < d.pace {
			d.units, d.pace = float64(l.Limit.Units), pace
		}
	}
}
