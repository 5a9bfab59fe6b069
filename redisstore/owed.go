package redisstore

import (
	"math"

	"example.com/sash/driver"
)

// owed is what GCRA has of a limit at an instant. The debt is a number with a fraction, which no charges of whole
// units would come to, so the formulas of script/gcra.lua are here once more.
func (s *State) owed(l *driver.Limit, now int64) driver.Status {
	status := driver.Status{Remaining: l.Units}
	c := s.counted(l)
	if c == nil {
		return status
	}
	const slack = 0.5
	length, units := float64(l.Window), float64(l.Units)
	debt := float64(c.Debt)/1e3 - float64(max(0, now-c.At.UnixMicro()))
	if debt <= 0 {
		return status
	}
	status.Remaining = min(l.Units, max(0, int64(math.Floor((length+slack-debt)*units/length))))
	wait := func(cost int64) int64 {
		over := debt + float64(cost)*length/units - length - slack
		return max(0, int64(math.Ceil(over)))
	}
	if status.Remaining < l.Units {
		status.Release = max(1, wait(status.Remaining+1))
		status.Reset = max(status.Release, wait(l.Units))
	}
	return status
}
