package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/internal/window"
)

// A Mode is what to answer when the store is unavailable.
type Mode uint8

// The modes, the strictest first.
const (
	// Closed answers with an error that is sash.ErrUnavailable. The default.
	Closed Mode = iota
	// Local lets this process decide over its share of each limit.
	Local
	// Open admits the call and counts nothing: there is no limit while the store is unavailable.
	Open
)

var modeNames = [...]string{Closed: "closed", Local: "local", Open: "open"}

// String returns "closed", "local" or "open".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// A Rule is a mode for calls up to a cost.
type Rule struct {
	// MaxCost is the highest cost that the rule is for. Zero is any cost.
	MaxCost int64
	// Mode is what to answer.
	Mode Mode
}

// A Policy says what to answer when the store is unavailable. It belongs to the limits of a limiter, or
// several:
//
//	Policy{Rules: []Rule{{MaxCost: 1, Mode: Open}, {MaxCost: 20, Mode: Local}}}
//
// admits single units, decides locally over costs of up to 20, and answers more costly calls with an error.
type Policy struct {
	// Rules are ordered by MaxCost. The first whose MaxCost is not below a call's cost counts; without
	// one the mode is Closed. A Peek has cost 0.
	Rules []Rule
	// Guard says that the limits guard a secret, such as a password that could be guessed. Then no rule
	// may say Open: who can bring the store down could guess without a limit.
	Guard bool
}

// Mode returns the mode for a call of a cost.
func (p *Policy) Mode(cost int64) Mode {
	for _, r := range p.Rules {
		if r.MaxCost == 0 || cost <= r.MaxCost {
			return r.Mode
		}
	}
	return Closed
}

// local reports whether a rule says Local.
func (p *Policy) local() bool {
	for _, r := range p.Rules {
		if r.Mode == Local {
			return true
		}
	}
	return false
}

func (p *Policy) validate(hasLocal bool) error {
	for i, r := range p.Rules {
		switch {
		case r.Mode > Open:
			return fmt.Errorf("failover: rule %d: unknown mode %v", i, r.Mode)
		case r.MaxCost < 0:
			return fmt.Errorf("failover: rule %d: MaxCost must not be negative", i)
		case i > 0 && (p.Rules[i-1].MaxCost == 0 || r.MaxCost != 0 && r.MaxCost <= p.Rules[i-1].MaxCost):
			return fmt.Errorf("failover: rule %d is never used: order the rules by MaxCost, with 0, any cost, last", i)
		case r.Mode == Open && p.Guard:
			return fmt.Errorf("failover: rule %d says open, but these limits guard a secret: use local or closed", i)
		case r.Mode == Local && !hasLocal:
			return errors.New("failover: mode local needs Options.Local, such as memstore.New(nil)")
		}
	}
	return nil
}

// answer answers requests by policy: a single one that may be repeated if the ID is not empty.
func (s *Store) answer(ctx context.Context, id string, reqs []sash.Request, cause error) ([]sash.Result, error) {
	mode := Open
	for _, req := range reqs {
		mode = min(mode, s.policy.Mode(req.Cost))
	}
	switch mode {
	case Local:
		return s.local.decide(ctx, id, reqs, cause, s.part(reqs[0]).wait())
	case Open:
		results := make([]sash.Result, len(reqs))
		for i, req := range reqs {
			results[i] = open(req, cause)
		}
		return results, nil
	default:
		return nil, cause
	}
}

// open admits a request as if nothing had been charged before.
func open(req sash.Request, cause error) sash.Result {
	var statuses [sash.MaxLimits]window.Status
	limits := req.Policy.Limits()
	for i, l := range limits {
		statuses[i].Remaining = l.Units - req.Cost
	}
	res := sash.NewResult(req, time.Now().UnixMicro(), 0, statuses[:len(limits)])
	res.Source, res.Cause = sash.FromPolicy, cause
	return res
}
