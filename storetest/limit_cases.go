package storetest

import (
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// limitCases test several limits on one subject.
var limitCases = []testCase{
	{
		name:    "every limit must have room",
		promise: "a call is admitted if every limit has room, and then charged to all of them, otherwise to none",
		only:    func(a sash.Algorithm) bool { return a != sash.GCRA }, // gives units back meanwhile
		run: func(s *suite) {
			l := s.limiter(sash.Every(3, window), sash.Every(5, 6*window))
			s.align(6 * window)
			s.fill(l, "k", 3)
			s.Advance(2 * window)
			s.fill(l, "k", 1)
			before := s.peek(l, "k").Limits()
			res := s.allow(l, "k", 2)
			by, _ := res.RefusedBy()
			if res.Allowed || by.Limit.Window != 6*window || res.Limits()[0].Refused {
				s.broken("allowed %v, refused by %v; the minute has room for one of two", res.Allowed, by.Limit)
			}
			if after := s.peek(l, "k").Limits(); after[0] != before[0] || after[1] != before[1] {
				s.broken("after a refusal by the second limit %+v, before it %+v", after, before)
			}
			s.fill(l, "k", 1)
		},
	},
	{
		name:    "many limits",
		promise: "every limit is enforced, in any order and up to the maximum number per subject",
		only:    exact,
		run: func(s *suite) {
			var limits []sash.Limit
			for i := range driver.MaxLimits {
				// The last limit is the tightest: 8 units per window of 80 s.
				limits = append(limits, sash.Every(int64(2*driver.MaxLimits-i-1), window*time.Duration(i+1)))
			}
			l := s.limiter(limits...)
			for range driver.MaxLimits {
				s.fill(l, "k", 1)
				s.Advance(time.Second)
			}
			res := s.allow(l, "k", 1)
			by, _ := res.RefusedBy()
			if res.Allowed || by.Limit.Window != limits[driver.MaxLimits-1].Window {
				s.broken("allowed %v, refused by %v", res.Allowed, by.Limit)
			}
			if want := driver.MaxLimits * (window - time.Second); res.RetryAfter != want {
				s.broken("retry after %v, want %v", res.RetryAfter, want)
			}
		},
	},
	{
		name:    "limits can change",
		promise: "the limits are those of the call: charges made under other limits of the same window count",
		only:    func(a sash.Algorithm) bool { return a != sash.GCRA },
		run: func(s *suite) {
			s.align(window)
			large, small := s.limiter(sash.Every(10, window)), s.limiter(sash.Every(3, window))
			s.fill(large, "k", 5)
			if res := s.allow(small, "k", 1); res.Allowed || res.Remaining != 0 {
				s.broken("5 units are in use and the limit is lowered to 3: allowed %v, %d remain", res.Allowed, res.Remaining)
			}
			if res := s.peek(small, "k"); res.Allowed || res.RetryAfter <= 0 {
				s.broken("a peek at a limit that is exceeded: allowed %v, retry after %v", res.Allowed, res.RetryAfter)
			}
			if res := s.peek(large, "k"); res.Remaining != 5 {
				s.broken("5 of 10 are in use: %d remain", res.Remaining)
			}
			s.fill(large, "k", 5)
		},
	},
	{
		name:    "windows can change",
		promise: "no charge inside the longest window that a subject was charged under is forgotten, whatever windows come between",
		only:    exact,
		run: func(s *suite) {
			long := s.limiter(sash.Every(100, time.Second), sash.Every(40, time.Hour))
			short := s.limiter(sash.Every(100, time.Second))
			s.fill(long, "k", 1)
			for range 30 {
				s.Advance(time.Minute)
				s.fill(short, "k", 1)
			}
			if res := s.peek(long, "k"); res.Remaining != 9 {
				s.broken("31 of 40 an hour are in use: %d remain", res.Remaining)
			}
		},
	},
	{
		name:    "a day ends at midnight",
		promise: "a calendar limit counts from the last local boundary: a day has 23 hours when clocks go forward",
		only:    calendar,
		run: func(s *suite) {
			zone, err := time.LoadLocation("America/Los_Angeles")
			if err != nil {
				s.Fatal(err)
			}
			l := s.limiter(sash.PerCalendar(2, sash.CalendarDay, zone), sash.Every(10, window))
			midnight := time.Date(2030, 3, 10, 0, 0, 0, 0, zone)
			s.Advance(midnight.Sub(s.Now()) - time.Microsecond)
			s.fill(l, "k", 2)
			if res := s.allow(l, "k", 1); res.Allowed || res.RetryAfter != time.Microsecond {
				s.broken("a microsecond before midnight: allowed %v, retry after %v", res.Allowed, res.RetryAfter)
			}
			s.Advance(time.Microsecond)
			s.fill(l, "k", 2)
			if res := s.allow(l, "k", 1); res.Allowed || res.RetryAfter != 23*time.Hour {
				s.broken("on the day of 23 hours: allowed %v, retry after %v", res.Allowed, res.RetryAfter)
			}
		},
	},
	{
		name:    "a call does not join one from before a boundary",
		promise: "calls on two sides of a calendar boundary are counted apart, even where calls share entries",
		only:    calendar,
		run: func(s *suite) {
			l := s.limiter(sash.PerCalendar(5, sash.CalendarHour, nil), sash.Every(100, window))
			s.align(time.Hour)
			s.Advance(-time.Microsecond)
			s.fill(l, "k", 4)
			s.Advance(time.Microsecond)
			if res := s.allow(l, "k", 1); !res.Allowed || res.Limits()[0].Remaining != 4 {
				s.broken("the first call of an hour: %d of 5 remain", res.Limits()[0].Remaining)
			}
		},
	},
}
