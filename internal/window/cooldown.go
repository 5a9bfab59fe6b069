package window

import "example.com/sash/driver"

// A CoolDown is the state of a key that is left alone for a while. It holds no charges: Look finds all units
// free, and Charge and Settle do nothing.
type CoolDown struct {
	end, length int64
	guessed     bool
}

// Begin begins a cool-down at now, unless the state has one that ends as late.
func (s *CoolDown) Begin(now int64, c driver.CoolDown) {
	if s.At(now); now+c.Length > s.end {
		s.end, s.length, s.guessed = now+c.Length, c.Length, c.Guessed
	}
}

// At returns the cool-down as it is at now. One that began later than now, by a clock that went back, begins
// now.
func (s *CoolDown) At(now int64) driver.CoolDown {
	if s.length == 0 || now >= s.Expires() {
		return driver.CoolDown{}
	}
	s.end = min(s.end, now+s.length)
	return driver.CoolDown{Length: s.length, Left: s.end - now, Guessed: s.guessed}
}

// Look implements [State].
func (s *CoolDown) Look(_, _ int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	for i := range limits {
		out[i] = driver.Status{Remaining: limits[i].Units}
	}
	return 0
}

// Charge implements [State].
func (s *CoolDown) Charge(int64, int64, []driver.Limit) {}

// Settle implements [State].
func (s *CoolDown) Settle(int64, int64, int64, []driver.Limit) {}

// Expires implements [State].
func (s *CoolDown) Expires() int64 { return s.end + driver.CoolDown{Length: s.length}.Keep() }

// Reward implements [State].
func (s *CoolDown) Reward(_, _ int64, _ []driver.Limit) (given int64) { return 0 }
