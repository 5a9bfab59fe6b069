package redisbench

import (
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/report"
)

// A load is a state of the log and the calls that meet it.
type load struct {
	name string
	// jobs returns what is asked in turn, when one decision comes every period.
	jobs func(period time.Duration) []job
	// fill is how many decisions bring the log into the state that is measured.
	fill int
	// adapts says that the jobs depend on the period, which is then measured first, each round.
	adapts bool
}

// withRoom starts from nothing and never comes near the limit: the log grows as it does in use.
func withRoom(cost int64) load {
	return load{
		name: "with room",
		jobs: func(time.Duration) []job {
			return []job{{"room", cost, []sash.Limit{sash.Every(sash.MaxEntries, time.Hour)}}}
		},
	}
}

// fresh spreads the calls over many keys, ten to each.
func fresh(decisions int) load {
	return load{
		name: "ten calls a key",
		jobs: func(time.Duration) []job {
			jobs := make([]job, max(1, decisions/10))
			for i := range jobs {
				jobs[i] = job{fmt.Sprintf("client:%06d", i), 1, []sash.Limit{sash.PerMinute(60)}}
			}
			return jobs
		},
	}
}

// leaving keeps about as many calls in the window: as one leaves, the next one comes. The limit is far
// above that, since the machine's unsteady speed is not to cause refusals, which cost less.
func leaving(calls int, cost int64) load {
	return load{
		name:   fmt.Sprintf("one leaves as one comes, %d in the window", calls),
		adapts: true,
		fill:   calls * 12 / 10,
		jobs: func(period time.Duration) []job {
			return []job{{"leaving", cost, []sash.Limit{sash.Every(sash.MaxEntries, span(calls, period))}}}
		},
	}
}

// twoLeaving is leaving with two windows.
func twoLeaving(short, long int) load {
	return load{
		name:   fmt.Sprintf("one leaves as one comes, %d and %d in the windows", short, long),
		adapts: true,
		fill:   long * 12 / 10,
		jobs: func(period time.Duration) []job {
			return []job{{"two-leaving", 1, []sash.Limit{
				sash.Every(sash.MaxEntries-1, span(short, period)),
				sash.Every(sash.MaxEntries, span(long, period)),
			}}}
		},
	}
}

// twoWithRoom is withRoom with two windows.
func twoWithRoom() load {
	return load{
		name: "two windows with room",
		jobs: func(time.Duration) []job {
			return []job{{"two-room", 1, []sash.Limit{sash.Every(50_000, time.Minute), sash.Every(sash.MaxEntries, time.Hour)}}}
		},
	}
}

// refused is a full window that nothing leaves.
func refused(cost int64) load {
	return load{
		name: "refused",
		fill: 300,
		jobs: func(time.Duration) []job {
			return []job{{"refused", cost, []sash.Limit{sash.Every(300*cost, time.Hour)}}}
		},
	}
}

// holding keeps n calls in the window of each key.
func holding(n int) load {
	keys := max(1, 1000/n)
	return load{
		name:   fmt.Sprintf("%d calls in the window", n),
		adapts: true,
		fill:   n * keys * 11 / 10,
		jobs: func(period time.Duration) []job {
			window := span(n*keys, period)
			if n == sash.MaxEntries {
				window = span(n*keys*9/10, period) // stay below the limit
			}
			jobs := make([]job, keys)
			for i := range jobs {
				jobs[i] = job{fmt.Sprintf("hold:%d", i), 1, []sash.Limit{sash.Every(sash.MaxEntries, window)}}
			}
			return jobs
		},
	}
}

func span(calls int, period time.Duration) time.Duration {
	return max(sash.MinWindow, (time.Duration(calls) * period).Truncate(time.Microsecond))
}

// period measures how often a contender decides under a busy connection.
func (s *server) period(c contender, cost int64, limits int) (time.Duration, error) {
	j := job{"period", cost, []sash.Limit{sash.Every(sash.MaxEntries, 5*time.Millisecond)}}
	if limits > 1 {
		j.limits = append(j.limits, sash.Every(sash.MaxEntries-1, 20*time.Millisecond))
	}
	if _, err := s.decide(c, []job{j}, 2000); err != nil {
		return 0, err
	}
	t, err := s.decide(c, []job{j}, 4000)
	return t.wall / time.Duration(max(1, t.decisions)), err
}

// round brings the log into the load's state and measures n decisions.
func (s *server) round(c contender, l load, n int) (tally, error) {
	if err := s.flush(); err != nil {
		return tally{}, err
	}
	jobs := l.jobs(10 * time.Microsecond)
	if l.adapts {
		period, err := s.period(c, jobs[0].cost, len(jobs[0].limits))
		if err != nil {
			return tally{}, err
		}
		jobs = l.jobs(period)
	}
	if l.fill > 0 {
		if _, err := s.decide(c, jobs, l.fill); err != nil {
			return tally{}, err
		}
	}
	return s.decide(c, jobs, n)
}

// A cell is one contender under one load.
type cell struct {
	time  report.Figure // microseconds of server time a decision
	share report.Figure // percent admitted
}

// rounds measures contenders side by side: every contender once a round, in turn.
func (s *server) rounds(rounds, n int, l load, contenders ...contender) ([]cell, error) {
	cells := make([]cell, len(contenders))
	for range rounds {
		for i, c := range contenders {
			t, err := s.round(c, l, n)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.name, l.name, err)
			}
			cells[i].time.Add(t.micros)
			cells[i].share.Add(t.share())
		}
	}
	return cells, nil
}
