package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A Mode is how a Store answers while the store behind it is unavailable.
type Mode uint8

// The modes, the strictest first.
const (
	// Closed answers with an error that is sash.ErrUnavailable. The default.
	Closed Mode = iota
	// Local lets this process decide over its share of each limit.
	Local
	// Open admits the call and counts nothing: no limit holds while the store is unavailable, but for OpenPerSecond.
	Open
)

// String returns "closed", "local" or "open".
func (m Mode) String() string { return [...]string{Closed: "closed", Local: "local", Open: "open"}[m] }

// A Rule is a mode for calls up to a cost.
type Rule struct {
	// MaxCost is the highest cost to which the rule applies. Zero is any cost.
	MaxCost int64
	// Mode is how to answer.
	Mode Mode
}

// Modes choose a Mode by a call's cost. They belong to the limits of one limiter or several:
//
//	Modes{Rules: []Rule{{MaxCost: 1, Mode: Open}, {MaxCost: 20, Mode: Local}}}
//
// admits single units, decides locally over costs of up to 20, and returns an error for higher costs.
type Modes struct {
	// Rules are ordered by MaxCost. The first rule whose MaxCost is at least the call's cost (0 for a Peek) counts. Without one, Closed does.
	Rules []Rule
	// Guard marks limits that guard a secret, such as a password. No rule may then be Open, or attackers could take the store down and guess.
	Guard bool
}

// Mode returns the mode for a call of a cost.
func (m *Modes) Mode(cost int64) Mode {
	for _, r := range m.Rules {
		if r.MaxCost == 0 || cost <= r.MaxCost {
			return r.Mode
		}
	}
	return Closed
}

func (m *Modes) local() bool {
	return slices.ContainsFunc(m.Rules, func(r Rule) bool { return r.Mode == Local })
}

func (m *Modes) validate(hasLocal bool) error {
	for i, r := range m.Rules {
		switch {
		case r.Mode > Open:
			return fmt.Errorf("failover: rule %d: unknown mode %d", i, uint8(r.Mode))
		case r.MaxCost < 0:
			return fmt.Errorf("failover: rule %d: MaxCost must not be negative", i)
		case i > 0 && (m.Rules[i-1].MaxCost == 0 || r.MaxCost != 0 && r.MaxCost <= m.Rules[i-1].MaxCost):
			return fmt.Errorf("failover: rule %d is never used: order the rules by MaxCost, with 0, any cost, last", i)
		case r.Mode == Open && m.Guard:
			return fmt.Errorf("failover: rule %d says open, but these limits guard a secret: use local or closed", i)
		case r.Mode == Local && !hasLocal:
			return errors.New("failover: mode local needs Options.Local, such as memstore.New(nil)")
		}
	}
	return nil
}

func (s *Store) answer(ctx context.Context, ops []driver.Op, cause error) error {
	mode, cost := Open, int64(0)
	for i := range ops {
		mode = min(mode, s.modes.Mode(ops[i].Cost))
		cost = max(cost, ops[i].Cost)
	}
	switch mode {
	case Local:
		return s.local.decide(ctx, ops, cause, max(firstPause, s.part(ops[0].Request).ready(0)))
	case Open:
		if s.ceiling != nil && cost > 0 {
			if res, err := s.ceiling.AllowN(context.WithoutCancel(ctx), "open", cost); err != nil || !res.Allowed {
				return &sash.StoreError{Err: fmt.Errorf("%w: %w", ErrCeiling, cause)}
			}
		}
		for i := range ops {
			ops[i].Answer = open(ops[i].Request, cause)
		}
		return nil
	}
	return cause
}

func open(req driver.Request, cause error) driver.Answer {
	var statuses [driver.MaxLimits]driver.Status
	for i, l := range req.Policy.Limits {
		statuses[i].Remaining = l.Units - req.Cost
	}
	answer := driver.Answer{Source: driver.FromPolicy, Cause: cause}
	answer.Set(time.Now().UnixMicro(), 0, statuses[:len(req.Policy.Limits)])
	if req.Partial {
		answer.Charged = req.Cost
	}
	return answer
}
