package modeltest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
)

// A server whose clock is within a window of 1970, as that of a board without a battery is, decides like any other: with
// sliding limits, and with those of the calendar, whose periods began before 1970. So does memory.
func TestAClockNear1970(t *testing.T) {
	server := redistest.Start(t)
	limits := []sash.Limit{sash.Every(3, time.Hour)}
	for _, zone := range []string{"UTC", "America/Los_Angeles", "Pacific/Auckland", "Asia/Kolkata"} {
		in, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, sash.PerCalendar(3, sash.CalendarHour, in),
			sash.PerCalendar(3, sash.CalendarDay, in), sash.PerCalendar(3, sash.CalendarMonth, in))
	}
	for _, a := range sash.Algorithms() {
		for _, limit := range limits {
			policy, err := sash.NewPolicy(options(a), limit)
			if err != nil {
				continue // the algorithm has no calendar
			}
			t.Run(a.String()+" "+limit.String(), func(t *testing.T) {
				redis, clock, _ := virtual(t, server.Addr(), nil)
				for _, store := range []smallStore{redis, memstore.New(&memstore.Options{Now: clock.Now})} {
					clock.Advance(time.Unix(10, 0).Sub(clock.Now()))
					window := 2 * time.Hour
					if limit.Period != 0 {
						_, end := policy.Limits[0].Bounds(clock.Now().UnixMicro())
						window = time.UnixMicro(end).Sub(clock.Now())
					}
					s := newScenario(store, clock, policy, nil)
					for i := range 8 {
						if answer := s.call(1, 0); s.err != nil || answer.Allowed() != (i%4 < 3) {
							t.Errorf("%T, call %d: allowed is %v, %v", store, i, answer.Allowed(), s.err)
						}
						clock.Advance(time.Second)
						if i == 3 {
							clock.Advance(window)
						}
					}
				}
			})
		}
	}
}
