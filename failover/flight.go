package failover

import "example.com/sash/driver"

// A flight is a charge that the store may be making now: a debt that is being written, or a call that was answered locally
// before the store did. Settlements find the debt meanwhile, and Reset comes after the flight.
type flight struct {
	of    account
	units int64         // that the store may charge
	over  chan struct{} // closed when the store cannot charge them any more

	debt      *debt // guarded by the backlog's mu, until it is taken back: then nil
	moved     int64 // guarded so too: by how much settlements changed the debt
	forgotten bool  // guarded so too: by Reset
}

// claim begins the flight of what is due of an account's debt. It returns nil if nothing is any more.
func (b *backlog) claim(of account) *flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.debts[of]
	if d == nil {
		return nil
	}
	b.drop(d)
	var ahead *debt
	if !b.hurries(of) {
		d, ahead = d.split()
	}
	switch _, owes := d.due(); {
	case !owes && ahead == nil:
		b.remove(of)
		return nil
	case !owes:
		return nil
	case ahead == nil:
		delete(b.debts, of)
		b.accounts.Add(-1)
	default:
		b.debts[of] = ahead
	}
	return b.begin(&flight{of: of, units: min(d.units(), driver.MaxUnits), debt: d})
}

// call begins the flight of a call that was admitted locally at an instant, a delay ahead. It has a debt if it has no
// ID: with one the account owes it already.
func (b *backlog) call(id string, req driver.Request, at, delay int64) *flight {
	f := &flight{of: accountOf(id, req.Key, req.Policy), units: req.Cost}
	if id == "" {
		f.debt = &debt{policy: req.Policy, leave: map[int64]*charge{end(req.Policy, at): newCharge(req.Cost, at, delay)}}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begin(f)
}

// begin adds a flight. The caller holds mu.
func (b *backlog) begin(f *flight) *flight {
	f.over = make(chan struct{})
	b.flights[f] = struct{}{}
	return f
}

// takeBack returns a flight's debt, which no settlement finds from now on, or nil if Reset forgot it.
func (b *backlog) takeBack(f *flight) (d *debt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, f.debt = f.debt, nil
	b.settled.Add(-int64(d.ids()))
	if f.forgotten {
		return nil
	}
	return d
}

// end removes a flight: the store has charged it, or never will.
func (b *backlog) end(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.flights, f)
	close(f.over)
}
