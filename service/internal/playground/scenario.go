// Package playground decides the calls of a scenario under several algorithms, in virtual time. `make
// playground` builds one HTML file with this package and the limiter, compiled to WebAssembly.
package playground

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
)

// The bounds of a scenario. Within them, a browser decides it in the time of a frame or two.
const (
	maxCalls = 2000 // decisions for each algorithm
	maxTime  = 366 * 24 * time.Hour
	within   = 30 * 24 * time.Hour // how long a booked call may wait
)

// A Scenario has limits, algorithms and calls.
type Scenario struct {
	Limits     string        // such as "20/1s,600/1m"
	Algorithms []string      // empty for all
	Resolution time.Duration // of sliding-buckets; zero means a hundredth of the shortest window
	Calls      []Call
}

// A Call is a number of equal calls at one instant.
type Call struct {
	At    time.Duration // since the start, which is the boundary of every window
	Cost  int64
	Count int
	Book  bool // it waits for its turn
}

// A Track is what one algorithm decided.
type Track struct {
	Algorithm string
	Answers   []Answer // of each call, in the order of the scenario
	Worst     []Worst  // the fullest trailing window of each limit
	Admitted  int      // calls
	Refused   int
	Error     string // why this algorithm decides nothing, such as a resolution that is too fine
}

// An Answer has the decisions on one Call.
type Answer struct {
	Admitted   int
	Refused    int
	RetryAfter time.Duration   // of the first refusal
	Starts     []time.Duration // when the admitted calls start, since the start of the scenario
	Remaining  []int64         // units left of each limit afterwards
	Note       string          // why calls have no answer: the algorithm does not book, or the cost can never fit
}

// A Worst is the window with the most units that start in it.
type Worst struct {
	Limit string
	Units int64 // of the limit
	Most  int64 // in the window
	Ends  time.Duration
}

// start is the start of a minute, an hour, a day and a year, so that windows counted from boundaries begin there.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Run decides a scenario. It returns an error for an invalid scenario.
func Run(ctx context.Context, s Scenario) ([]Track, error) {
	limits, err := s.check()
	if err != nil {
		return nil, err
	}
	algorithms := sash.Algorithms()
	if len(s.Algorithms) > 0 {
		algorithms = nil
		for _, name := range s.Algorithms {
			var a sash.Algorithm
			if err := a.UnmarshalText([]byte(name)); err != nil {
				return nil, err
			}
			algorithms = append(algorithms, a)
		}
	}
	tracks := make([]Track, 0, len(algorithms))
	for _, algorithm := range algorithms {
		track, err := s.run(ctx, algorithm, limits)
		if err != nil {
			track.Error = strings.TrimPrefix(err.Error(), "sash: ")
		}
		tracks = append(tracks, track)
	}
	return tracks, nil
}

func (s *Scenario) check() (limits []sash.Limit, err error) {
	for text := range strings.SplitSeq(s.Limits, ",") {
		l, err := sash.ParseLimit(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if l.Period != 0 {
			return nil, fmt.Errorf("%s is a limit of the calendar: the playground has windows that slide, such as 50/10s", l)
		}
		limits = append(limits, l)
	}
	decisions := 0
	for i, c := range s.Calls {
		switch {
		case c.At < 0 || c.At > maxTime || c.At%time.Microsecond != 0:
			return nil, fmt.Errorf("call %d: its time must be whole microseconds, from 0 to a year", i+1)
		case c.Cost < 1 || c.Cost > sash.MaxUnits:
			return nil, fmt.Errorf("call %d: its cost must be 1 to %d units", i+1, int64(sash.MaxUnits))
		case c.Count < 1 || c.Count > maxCalls:
			return nil, fmt.Errorf("call %d: its number must be 1 to %d", i+1, maxCalls)
		}
		if decisions += c.Count; decisions > maxCalls {
			return nil, fmt.Errorf("there are more than %d calls: remove some", maxCalls)
		}
	}
	return limits, nil
}

func (s *Scenario) run(ctx context.Context, algorithm sash.Algorithm, limits []sash.Limit) (Track, error) {
	track := Track{Algorithm: algorithm.String(), Answers: make([]Answer, len(s.Calls))}
	now := start
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	opts := &sash.Options{Algorithm: algorithm}
	if algorithm == sash.SlidingBuckets {
		shortest := slices.MinFunc(limits, func(a, b sash.Limit) int { return cmp.Compare(a.Window, b.Window) })
		opts.Resolution = cmp.Or(s.Resolution, shortest.Window/100)
	}
	limiter, err := sash.New(store, opts, limits...)
	if err != nil {
		return track, err
	}
	for _, i := range s.inOrder() {
		now = start.Add(s.Calls[i].At)
		answer, err := decide(ctx, limiter, s.Calls[i])
		if err != nil {
			return track, err
		}
		track.Answers[i] = answer
		track.Admitted += answer.Admitted
		track.Refused += answer.Refused
	}
	for _, l := range limits {
		track.Worst = append(track.Worst, s.worst(&track, l))
	}
	return track, nil
}

// inOrder returns the indexes of the calls in time order. Calls at the same instant keep their order.
func (s *Scenario) inOrder() []int {
	order := make([]int, len(s.Calls))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Calls[a].At, s.Calls[b].At) })
	return order
}

func decide(ctx context.Context, limiter *sash.Limiter, c Call) (a Answer, err error) {
	for range c.Count {
		res, err := ask(ctx, limiter, c)
		switch {
		case errors.Is(err, sash.ErrUnsupported):
			a.Note = fmt.Sprintf("%v does not book calls", limiter.Policy().Algorithm)
			return a, nil
		case errors.Is(err, sash.ErrCostAboveLimit):
			a.Note = strings.TrimPrefix(err.Error(), "sash: ")
			return a, nil
		case err != nil:
			return a, err
		}
		if res.Allowed {
			a.Admitted++
			a.Starts = append(a.Starts, res.At.Sub(start)) // later than now for a booking
		} else if a.Refused++; a.Refused == 1 {
			a.RetryAfter = res.RetryAfter
		}
		a.Remaining = a.Remaining[:0]
		for _, l := range res.Limits() {
			a.Remaining = append(a.Remaining, l.Remaining)
		}
	}
	return a, nil
}

func ask(ctx context.Context, limiter *sash.Limiter, c Call) (sash.Result, error) {
	if !c.Book {
		return limiter.AllowN(ctx, "caller", c.Cost)
	}
	r, err := limiter.Reserve(ctx, "caller", c.Cost, &sash.ReserveOptions{WaitUpTo: within})
	if err != nil {
		return sash.Result{}, err
	}
	return r.Result(), nil
}

// worst finds the trailing window with the most units, by the definition. Such a window ends at the start of a call.
func (s *Scenario) worst(t *Track, l sash.Limit) Worst {
	var all []judge.Charge
	for i, a := range t.Answers {
		for _, at := range a.Starts {
			all = append(all, judge.Charge{From: int64(at), To: int64(at), Units: s.Calls[i].Cost})
		}
	}
	full, _ := judge.Fullest(all, int64(l.Window), l.Units)
	return Worst{l.String(), l.Units, full.Units, time.Duration(full.To)}
}
