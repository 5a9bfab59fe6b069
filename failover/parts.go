package failover

import "example.com/sash/driver"

// divide creates a breaker for each part.
func (g *guard) divide(o *Options) {
	n := max(1, o.Parts)
	if o.Part != nil && n > 1 {
		g.partOf = o.Part
	} else {
		n = 1
	}
	onChange := o.OnChange
	if onChange != nil && n > 1 {
		onChange = func(_ State, cause error) {
			now := g.now()
			if now != Up && cause == nil { // this part is back, but another one is not
				cause = g.cause()
			}
			if cause == nil || now == Up {
				now, cause = Up, nil
			}
			o.OnChange(now, cause)
		}
	}
	g.breakers = make([]breaker, n)
	for i := range g.breakers {
		g.breakers[i].init(o.Trip, o.Budget, onChange)
	}
}

// part returns the breaker of a request's part.
func (g *guard) part(req driver.Request) *breaker { return g.of(req.Key, req.Policy) }

// of returns the breaker of a subject's part.
func (g *guard) of(key string, policy *driver.Policy) *breaker {
	return &g.breakers[g.index(key, policy)]
}

// owed returns the backlog of a subject's part.
func (g *guard) owed(key string, policy *driver.Policy) *backlog {
	return &g.local.backlogs[g.index(key, policy)]
}

func (g *guard) index(key string, policy *driver.Policy) uint {
	if g.partOf == nil {
		return 0
	}
	return uint(g.partOf(key, policy)) % uint(len(g.breakers))
}

// now returns the state of all parts together.
func (g *guard) now() State {
	now := Up
	for i := range g.breakers {
		switch g.breakers[i].now() {
		case Down:
			return Down
		case Probing:
			now = Probing
		}
	}
	return now
}

// cause returns why a part gets no calls, or nil if all parts get calls.
func (g *guard) cause() error {
	for i := range g.breakers {
		b := &g.breakers[i]
		b.mu.Lock()
		cause := b.cause
		b.mu.Unlock()
		if cause != nil {
			return cause
		}
	}
	return nil
}
