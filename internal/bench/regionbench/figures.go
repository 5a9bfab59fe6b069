package regionbench

import (
	"fmt"
	"time"

	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/redistest"
)

// String names a way to decide, in tables.
func (k kind) String() string {
	return [...]string{"one Redis for all regions", "a limit in each region", "Sash, leases of a home", "sash serve"}[k]
}

// name names a region, in tables.
func name(region int) string { return fmt.Sprintf("%v away", 2*delays[region]) }

func everything(*stream, *record) bool { return true }

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", inMS(d)) }

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f", 100*float64(part)/float64(max(1, whole)))
}

// failures returns the part of the calls that failed, in percent.
func failures(records []record) string {
	n := len(of(records, func(c *record) bool { return c.Outcome == failed }))
	return percent(int64(n), int64(len(records)))
}

func (b *bench) limit() limit {
	return limit{int64(flow * b.scaled(window).Seconds()), b.scaled(window)}
}

func (b *bench) lease() time.Duration { return max(longest, b.scaled(longest)) }

// counting reads how many scripts the home has run.
func (b *bench) counting(at time.Duration, count *int64) event {
	return event{at, func() (err error) {
		*count, err = scripts(b.planet.home)
		return err
	}}
}

// most returns the units in the worst window of a subject.
func (r *run) most(calls []record, l limit) int64 {
	return max(worst(byStores(calls), l.Window), worst(byCallers(calls), l.Window))
}

// share returns how many calls were admitted, from some time on, for a hundred that an exact limiter beside every caller
// would have admitted of the same calls.
func (r *run) share(calls []record, l limit, since time.Duration) float64 {
	from := r.begin.Add(since).UnixNano()
	var due []int64
	for i := range calls {
		due = append(due, calls[i].Due)
	}
	of := of(calls, func(c *record) bool { return c.Due >= from })
	return 100 * float64(units(of, admitted)) / float64(max(1, possible(due, l.Units, l.Window, from)))
}

// say reports what went wrong, and how late calls were made.
func (r *run) say(to *report.Report, what any) {
	_, late := took(r.all(everything))
	to.Say("%v: calls were made late by %v (p50), %v (p99)", what, percentile(late, .5), percentile(late, .99))
	if errs := r.errs(); errs != "" {
		to.Say("%v: failed calls: %.1000s", what, errs)
	}
}

// scripts returns how many scripts a server has run.
func scripts(s *redistest.Server) (calls int64, err error) {
	for _, command := range []string{"evalsha", "eval"} {
		text, err := info(s, "commandstats", "cmdstat_"+command)
		if err != nil {
			return 0, err
		}
		var n int64
		if text != "" {
			if _, err := fmt.Sscanf(text, "calls=%d,", &n); err != nil {
				return 0, err
			}
		}
		calls += n
	}
	return calls, nil
}
