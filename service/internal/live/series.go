package live

import (
	"cmp"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// What becomes of a request or of one part of it.
type outcome uint8

const (
	allowed outcome = iota
	refused
	banned
	shadow
	failed
	invalid
	outcomes
)

func outcomeOf(o *decide.Observation) outcome {
	switch {
	case errors.Is(o.Err, sash.ErrCostAboveLimit):
		return refused // it can never fit
	case errors.Is(o.Err, config.ErrUnknownDomain), errors.Is(o.Err, sash.ErrInvalidCost), errors.Is(o.Err, sash.ErrInvalidLimit), errors.Is(o.Err, sash.ErrInvalidKey):
		return invalid
	case o.Err != nil:
		return failed
	}
	worst := allowed
	for i := range o.Answers {
		switch a := &o.Answers[i]; {
		case a.Banned:
			return banned
		case a.Refused && !a.Soft():
			worst = refused
		case a.Refused && worst == allowed:
			worst = shadow
		}
	}
	return worst
}

func partOf(o *decide.Observation, a *decide.Answer) outcome {
	switch {
	case o.Err != nil:
		return outcomeOf(o)
	case a.Banned:
		return banned
	case a.Refused && a.Soft():
		return shadow
	case a.Refused:
		return refused
	}
	return allowed
}

// A series is the counts of one line, and what they were in the last Span.
type series struct {
	counts [outcomes]atomic.Int64

	at     [1 + Span/Step]time.Time // guarded by the counter's mu, as those below: a ring
	were   [1 + Span/Step]By[int64]
	newest int
	filled int
}

func (s *series) now() By[int64] {
	n := func(o outcome) int64 { return s.counts[o].Load() }
	return By[int64]{n(allowed), n(refused), n(banned), n(shadow), n(failed), n(invalid)}
}

// last is what the latest sample had.
func (s *series) last() By[int64] { return s.were[s.newest] }

// sample notes the counts, and returns the line that they are.
func (s *series) sample(now time.Time) Line {
	line := Line{Count: s.now()}
	if s.filled == 0 && s.newest == 0 { // it counted nothing before it was there
		s.at[0], s.filled = now.Add(-Step), 1
	}
	s.newest = (s.newest + 1) % len(s.at)
	s.at[s.newest], s.were[s.newest] = now, line.Count
	s.filled = min(s.filled+1, len(s.at))
	oldest := (s.newest - s.filled + 1 + len(s.at)) % len(s.at)
	line.Rate = rate(minus(line.Count, s.were[oldest]), now.Sub(s.at[oldest]))
	return line
}

func minus(x, y By[int64]) By[int64] {
	return By[int64]{x.Allowed - y.Allowed, x.Refused - y.Refused, x.Banned - y.Banned, x.Shadow - y.Shadow, x.Failed - y.Failed, x.Invalid - y.Invalid}
}

func rate(n By[int64], over time.Duration) By[float64] {
	s := over.Seconds()
	if s <= 0 {
		return By[float64]{}
	}
	per := func(n int64) float64 { return math.Round(100*float64(n)/s) / 100 }
	return By[float64]{per(n.Allowed), per(n.Refused), per(n.Banned), per(n.Shadow), per(n.Failed), per(n.Invalid)}
}

// Sum is all outcomes together.
func (b By[N]) Sum() N { return b.Allowed + b.Refused + b.Banned + b.Shadow + b.Failed + b.Invalid }

// busier orders lines: by rate, then by count, then by name.
func busier(x, y Line) int {
	return cmp.Or(
		cmp.Compare(y.Rate.Sum(), x.Rate.Sum()), cmp.Compare(y.Count.Sum(), x.Count.Sum()),
		cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule),
	)
}
