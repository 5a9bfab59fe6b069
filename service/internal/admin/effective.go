package admin

import (
	"net/http"
	"time"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/wire"
)

// A rule is one rule of the configuration in use.
type rule struct {
	Rule      string         `json:"rule"` // its name in statistics
	Domain    string         `json:"domain"`
	Path      []config.Entry `json:"path"`
	Limits    []wire.Limit   `json:"limits"` // a limit that refuses everything has no units
	Algorithm string         `json:"algorithm"`
	Step      wire.Seconds   `json:"resolution"` // of sliding-buckets
	Cost      int64          `json:"cost"`
	Unlimited bool           `json:"unlimited"`
	Shadow    bool           `json:"shadow_mode"`
	Quota     bool           `json:"quota_mode"`
	Text      string         `json:"text"` // the whole rule in a line
}

func ruleOf(r *config.Rule) rule {
	return rule{
		Rule: r.Metric(), Domain: r.Domain, Path: r.Path, Limits: wire.LimitsOf(r.Limits), Algorithm: r.Options.Algorithm.String(),
		Step: wire.Seconds(r.Options.Resolution), Cost: r.Cost, Unlimited: r.Unlimited, Shadow: r.Shadow, Quota: r.Quota, Text: r.Describe(),
	}
}

// config answers the configuration in use, and, to a caller with access, the exceptions from it.
func (h *handler) config(w http.ResponseWriter, r *http.Request) {
	by := h.Guard.by(r)
	cfg := h.decider.Config()
	rules := []rule{}
	for _, r := range cfg.Rules() {
		rules = append(rules, ruleOf(r))
	}
	answer := map[string]any{
		"access": map[string]any{
			"authenticated": by != "", "by": by, "token": len(h.Guard.Tokens) > 0, "certificate": h.Guard.Certificates,
		},
		"domains": cfg.Domains(), "rules": rules, "read_at": nil, "error": nil, "overrides": nil, "bans": nil,
	}
	if last := h.Loading.last.Load(); last != nil {
		answer["read_at"] = wire.Instant(last.at)
		if last.err != nil {
			answer["error"] = last.err.Error()
		}
	}
	if by != "" {
		answer["overrides"], answer["bans"] = h.exceptions(exceptions.Override), h.exceptions(exceptions.Ban)
	}
	wire.Write(w, http.StatusOK, answer)
}

// store answers the state of the store.
func (h *handler) store(w http.ResponseWriter, r *http.Request) {
	wire.Write(w, http.StatusOK, h.state(h.Guard.by(r) != ""))
}

// state returns the state of the store, with free text only for a caller with access.
func (h *handler) state(known bool) wire.Store {
	report, status := h.Store(), h.Exceptions.Status()
	store := wire.Store{
		Status: report.Status, Store: report.Health.Store, Since: wire.When(report.Since), Uncounted: report.Uncounted,
		Instances: report.Instances, InFlight: report.Stats.InFlight,
		Local: wire.Local{
			Backlog: int64(report.Stats.Backlog), Written: report.Stats.Written, Lost: report.Stats.Lost, Doubtful: report.Stats.Doubtful,
		},
		Overrides: len(h.Exceptions.List(exceptions.Override)), Bans: len(h.Exceptions.List(exceptions.Ban)),
		ExceptionsReadAt: wire.When(status.Read), ExceptionsCurrent: status.Err == nil,
	}
	if m := report.Memory; m != nil {
		store.Memory = &wire.Memory{Subjects: m.Keys, MaxSubjects: m.MaxKeys, Evicted: m.Evicted, TurnedAway: m.TurnedAway}
	}
	if home := report.Home; home != nil {
		state := "down"
		if home.Up {
			state = "up"
		}
		store.Home = &wire.Home{
			State: state, Address: home.Address, Since: wire.When(home.Since), Way: wire.Seconds(home.Way),
			Calls: home.Calls, Failed: home.Failed, Leased: home.Leased, Spent: home.Spent, Returned: home.Returned,
		}
	}
	if store.Address, store.Cause = wire.Text(report.Address), wire.Text(report.Cause); store.Cause != nil {
		store.Reason = wire.Text(decide.Reasons[report.Cause])
	}
	if report.Err != nil && known {
		store.Error = wire.Text(report.Err.Error())
	}
	if store.Since != nil {
		since := wire.Seconds(time.Since(report.Since))
		store.For = &since
	}
	return store
}
