package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/sash"
)

// Caps bound whom proposed limits refuse.
type Caps struct {
	// Clients is the greatest share of the clients that may be refused at some point: 0.001 is one in a thousand.
	Clients float64
	// Requests is the greatest share of the requests that may be refused. Zero means no cap: then a few clients that
	// send much of the traffic may lose most of it.
	Requests float64
}

// shareOf returns the most of a number that a share allows. It forgives the error of floating point in what is meant to be
// whole, such as 0.7% of 1000.
func shareOf(share float64, of int64) int64 { return int64(share*float64(of) + 1e-6) }

func (c Caps) check() error {
	switch {
	case c.Clients < 0 || c.Clients >= 1 || math.IsNaN(c.Clients):
		return fmt.Errorf("the share of clients that may be affected must be from 0 to below 1, not %v", c.Clients)
	case c.Requests < 0 || c.Requests >= 1 || math.IsNaN(c.Requests):
		return fmt.Errorf("the share of requests that may be refused must be from 0 to below 1, not %v", c.Requests)
	}
	return nil
}

// A Suggestion is a pair of limits.
type Suggestion struct {
	Limits []sash.Limit
	// Affected counts the clients that the pair would refuse at some point, and Refused the requests.
	Affected int
	Refused  int64
	// Allowed is the greatest number of clients that may be affected.
	Allowed int
	// Burst and Sustained are the demands in the two windows.
	Burst, Sustained *Demand
}

// ErrNothingToSuggest means that the trace is empty.
var ErrNothingToSuggest = errors.New("no request has a key and a cost, so there is nothing to suggest")

// Suggest proposes one limit over a short window and one over a long window that together stay within the caps. Neither
// could be smaller without the other being larger. Of the pairs without a cap on requests it returns the one with the
// smallest product of units; where more than 64 clients may be affected, it tries 64 burst limits. With a cap on requests
// some of which cost more than others, a smaller limit can refuse fewer of them, and the pair may not be the smallest.
//
// It does not ask whether the trace is long enough to know such windows: see [Coverage]. With a cap on requests it packs
// those of the clients that may be refused once more, within the memory of the [Builder].
func (t *Trace) Suggest(ctx context.Context, caps Caps, burst, sustained time.Duration) (*Suggestion, error) {
	if err := caps.check(); err != nil {
		return nil, err
	}
	switch {
	case burst >= sustained:
		return nil, fmt.Errorf("the window of the burst, %v, must be shorter than the sustained one, %v", burst, sustained)
	case len(t.clients) == 0:
		return nil, ErrNothingToSuggest
	}
	demands, err := t.sliding(ctx, burst, sustained)
	if err != nil {
		return nil, err
	}
	s := &Suggestion{Allowed: int(shareOf(caps.Clients, int64(len(t.clients)))), Burst: demands[0], Sustained: demands[1]}
	// Whatever the pair is, it affects no other clients than these.
	r := t.refusals(s.Burst, s.Sustained, s.Burst.Least(s.Allowed), s.Sustained.Least(s.Allowed))
	most := int64(math.MaxInt64)
	if caps.Requests > 0 {
		most = shareOf(caps.Requests, t.counts.Requests)
		r.pack(ctx)
	}
	best := math.Inf(1)
	var first, second int64
	// The clients above the first limit determine how many may be above the second alone. If many clients may be
	// affected, a few steps of the first are enough.
	for above := 0; above <= s.Allowed; above += max(1, s.Allowed/64) {
		b := s.Burst.Least(above)
		l := t.second(s, b)
		if l < 0 {
			continue
		}
		if caps.Requests > 0 {
			var ok bool
			if l, ok = r.sustained(ctx, b, l, most, best); !ok {
				continue
			}
		}
		if product := math.Log(float64(b)) + math.Log(float64(l)); product < best {
			best, first, second = product, b, l
		}
	}
	if caps.Requests > 0 {
		first = r.burst(ctx, s.Burst.Least(s.Allowed), first, second, most, s.Allowed)
	}
	s.Limits = []sash.Limit{sash.Every(first, burst), sash.Every(second, sustained)}
	if s.Refused, s.Affected = r.count(ctx, first, second); r.err != nil {
		return nil, r.err
	}
	for _, l := range s.Limits {
		if err := l.Validate(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// second returns the smallest sustained limit that, together with the burst limit, affects no more clients than allowed.
func (t *Trace) second(s *Suggestion, first int64) int64 {
	spared := &Demand{} // the clients that the first limit does not affect
	for c := range t.clients {
		if s.Burst.byClient[c] <= first {
			spared.Peaks = append(spared.Peaks, s.Sustained.byClient[c])
		}
	}
	left := s.Allowed - (len(t.clients) - len(spared.Peaks))
	if left < 0 {
		return -1
	}
	slices.Sort(spared.Peaks)
	// A sustained limit below the burst limit would make the latter pointless.
	return max(first, spared.Least(left))
}
