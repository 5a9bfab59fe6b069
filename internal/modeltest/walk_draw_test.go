package modeltest

import (
	"fmt"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// The values that walks draw from.
var drawnWindows = []time.Duration{
	10 * time.Second, 12 * time.Second, 25 * time.Second, time.Minute, 10*time.Second + time.Microsecond,
	13*time.Second + 333_333*time.Microsecond, time.Hour, 24 * time.Hour,
}

var (
	drawnUnits  = []int64{1, 2, 3, 5, 7, 10, 20, 33, 100, 1000}
	bigUnits    = []int64{1_000_000, sash.MaxUnits / 2} // an entry of a log counts no more than MaxUnits
	resolutions = []time.Duration{time.Second, 250 * time.Millisecond, 10 * time.Second, 3_333 * time.Microsecond, 2 * time.Microsecond}
	zones       = []string{"UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"}
)

// bookPlans are limits of walks with bookings: few units, so that most calls wait.
var bookPlans = [][]sash.Limit{
	{sash.Every(5, 10*time.Second)},
	{sash.Every(12, 20*time.Second), sash.Every(4, 3*time.Second), sash.Every(9, 12*time.Second)},
	{sash.Every(9, 25*time.Second), sash.Every(6, 10*time.Second), sash.Every(3, time.Second)},
	{sash.PerCalendar(40, sash.CalendarHour, nil), sash.Every(20, time.Minute)},
	{sash.PerCalendar(30, sash.CalendarDay, nil), sash.Every(7, 10*time.Second+time.Microsecond)},
}

// plan draws 1 to 4 limits, seldom more, of different spans.
func (w *walk) plan() (*driver.Policy, error) {
	if w.setup.usual == bookings {
		if len(w.plans) == 0 {
			w.tight = bookPlans[w.choose(len(bookPlans))]
		}
		limits := slices.Clone(w.tight[:1+len(w.plans)%len(w.tight)])
		slices.Reverse(limits)
		return sash.NewPolicy(&w.opts, limits...)
	}
	n := 1 + w.choose(4)
	if w.choose(10) == 9 {
		n = driver.MaxLimits
	}
	calendar := w.algorithm != sash.SlidingCounter && w.algorithm != sash.GCRA
	var limits []sash.Limit
	have := make(map[string]bool)
	for range n {
		l := sash.Every(drawnUnits[w.choose(len(drawnUnits))], drawnWindows[w.choose(len(drawnWindows))])
		if calendar && w.choose(5) == 4 {
			zone, err := time.LoadLocation(zones[w.choose(len(zones))])
			if err != nil {
				return nil, err
			}
			l = sash.PerCalendar(l.Units, sash.CalendarHour+sash.Period(w.choose(3)), zone)
		}
		if !w.algorithm.Exact() || w.opts.Resolution >= time.Second && l.Window <= time.Hour && l.Period == 0 {
			if big := w.choose(8); big < len(bigUnits) { // a log would need too many entries
				l.Units = bigUnits[big]
			}
		}
		if !have[span(l)] {
			have[span(l)] = true
			limits = append(limits, l)
		}
	}
	return sash.NewPolicy(&w.opts, limits...)
}

func (w *walk) key() string { return fmt.Sprintf("%sk%d", w.prefix, w.choose(4)/2) }

func (w *walk) request() driver.Request {
	plan := w.plans[w.choose(len(w.plans))]
	req := driver.Request{Key: w.key(), Policy: plan, Cost: 1}
	if w.choose(2) == 1 {
		req.Cost = 1 + int64(w.choose(int(plan.MostUnits())))
	}
	if w.setup.usual == bookings {
		req.Cost = min(plan.MostUnits(), 1+int64(w.choose(3)))
		req.Within = []int64{1 + int64(w.choose(30_000_000)), 1 + int64(w.choose(30_000_000)), driver.MaxAhead, 0, 0}[w.choose(5)]
		req.MaySettle = w.choose(2) == 0
	} else if w.books && w.choose(2) == 1 {
		req.Within = min(driver.MaxAhead, 1+int64(w.choose(1<<(12+w.choose(26)))))
	}
	return req
}
