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

// A Suggestion is a pair of limits.
type Suggestion struct {
	Limits []sash.Limit
	// Affected counts the clients that the pair would refuse at some point.
	Affected int
	// Allowed is the greatest number of clients that may be affected.
	Allowed int
	// Burst and Sustained are the demands in the two windows.
	Burst, Sustained *Demand
}

// ErrNothingToSuggest means that the trace is empty.
var ErrNothingToSuggest = errors.New("no request has a key and a cost, so there is nothing to suggest")

// Suggest proposes one limit over a short window and one over a long window that together refuse at most a share of the
// clients at any point. Of all such pairs it returns the one with the smallest product of units.
func (t *Trace) Suggest(ctx context.Context, affect float64, burst, sustained time.Duration) (*Suggestion, error) {
	switch {
	case affect < 0 || affect >= 1 || math.IsNaN(affect):
		return nil, fmt.Errorf("the share of clients that may be affected must be from 0 to below 1, not %v", affect)
	case burst >= sustained:
		return nil, fmt.Errorf("the window of the burst, %v, must be shorter than the sustained one, %v", burst, sustained)
	case len(t.clients) == 0:
		return nil, ErrNothingToSuggest
	}
	demands, err := t.sliding(ctx, burst, sustained)
	if err != nil {
		return nil, err
	}
	s := &Suggestion{Allowed: int(affect * float64(len(t.clients))), Burst: demands[0], Sustained: demands[1]}
	best := math.Inf(1)
	// The clients above the first limit determine how many may be above the second alone. If many clients may be
	// affected, a few steps of the first are enough.
	step := max(1, s.Allowed/64)
	for above := 0; above <= s.Allowed; above += step {
		first := s.Burst.Least(above)
		second := t.second(s, first)
		if second < 0 {
			continue
		}
		if product := math.Log(float64(first)) + math.Log(float64(second)); product < best {
			best = product
			s.Limits = []sash.Limit{sash.Every(first, burst), sash.Every(second, sustained)}
		}
	}
	for c := range t.clients {
		if s.Burst.byClient[c] > s.Limits[0].Units || s.Sustained.byClient[c] > s.Limits[1].Units {
			s.Affected++
		}
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
