package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
	"example.com/sash/failover"
)

var modes = map[string]failover.Mode{"open": failover.Open, "local": failover.Local, "closed": failover.Closed}

// unavailable reads on_unavailable: one mode for every call, or modes by cost.
//
//	on_unavailable: local
//	on_unavailable: {1: open, 20: local, else: closed}
//
// The second form is open for calls of 1 unit, local up to 20 units, and closed above. Without else, calls above the last
// cost are closed.
func (b *ruleBody) unavailable(n *yaml.Node, rule *Rule) {
	switch n = Resolve(n); n.Kind {
	case yaml.ScalarNode:
		b.mode(n, 0, rule)
		return
	case yaml.MappingNode:
	default:
		b.Fail(n, "on_unavailable must be open, local or closed, or a mode by cost: {1: open, 20: local, else: closed}")
		return
	}
	if len(n.Content) == 0 {
		b.Fail(n, "on_unavailable is empty: omit it for closed")
	}
	last := int64(0) // the cost before
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if i > 0 && last == 0 {
			b.Fail(key, "on_unavailable: else applies to all other costs and must come last")
		}
		cost, err := strconv.ParseInt(strings.ReplaceAll(key.Value, "_", ""), 10, 64)
		switch {
		case key.Value == "else":
			cost = 0
		case key.Kind != yaml.ScalarNode || err != nil || cost < 1:
			b.Fail(key, "on_unavailable: %q must be else or the highest cost of a mode, a whole number of at least 1", Clip(key.Value))
		case cost <= last:
			b.Fail(key, "on_unavailable: costs must increase, but %d comes after %d", cost, last)
		}
		b.mode(n.Content[i+1], cost, rule)
		last = cost
	}
}

func (b *ruleBody) mode(n *yaml.Node, maxCost int64, rule *Rule) {
	n = Resolve(n)
	mode, known := modes[n.Value]
	switch {
	case n.Kind != yaml.ScalarNode || !known:
		b.Fail(n, "on_unavailable %q must be open, local or closed", Clip(n.Value))
	case mode == failover.Open && b.Guard:
		b.Fail(n, "on_unavailable is open beside guard: an attacker that brings the store down could guess without a limit; use local or closed")
	}
	rule.OnUnavailable.Rules = append(rule.OnUnavailable.Rules, failover.Rule{MaxCost: maxCost, Mode: mode})
}

// describeModes returns the modes in the form of the configuration; empty for the default.
func describeModes(p *failover.Modes) string {
	if len(p.Rules) == 0 {
		return ""
	}
	if p.Rules[0].MaxCost == 0 {
		return p.Rules[0].Mode.String()
	}
	var parts []string
	for _, r := range p.Rules {
		if r.MaxCost == 0 {
			parts = append(parts, fmt.Sprintf("else: %v", r.Mode))
		} else {
			parts = append(parts, fmt.Sprintf("%d: %v", r.MaxCost, r.Mode))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Defaults and bounds of a block.
const (
	blockRefusals   = 5
	blockWindow     = time.Minute
	mostBlockWindow = 24 * time.Hour
	mostBlockFor    = 30 * 24 * time.Hour
	mostRefusals    = 100
	blockForms      = "such as 10m, or {refusals: 5, window: 1m, for: 10m}"
)

// block reads the key block: how long a subject that was refused too often is refused every call.
//
//	block: 10m
//	block: {refusals: 5, window: 1m, for: 10m}
//
// Both are the same: five refusals within a minute begin a block of ten minutes.
func (b *ruleBody) block(n *yaml.Node, into *sash.Block) {
	into.Refusals, into.Window = blockRefusals, blockWindow
	switch n = Resolve(n); n.Kind {
	case yaml.ScalarNode:
		b.lasting("block", mostBlockFor, blockForms, &into.For)(n)
	case yaml.MappingNode:
		refusals := int64(blockRefusals)
		b.Mapping(n, "block", map[string]Field{
			"refusals": func(n *yaml.Node) { refusals = b.Units("refusals", n) },
			"window":   b.lasting("window", mostBlockWindow, "such as 1m", &into.Window),
			"for":      b.lasting("for", mostBlockFor, "such as 10m", &into.For),
		})
		switch {
		case refusals > mostRefusals:
			b.Fail(n, "block after %d refusals: refusals is 1 to %d", refusals, mostRefusals)
		case into.For == 0:
			b.Fail(n, "block needs for, how long a subject stays out: {refusals: %d, window: %s, for: 10m}", refusals, short(into.Window))
		}
		into.Refusals = int(refusals)
	default:
		b.Fail(n, "block must be how long a subject stays out, %s", blockForms)
	}
}

// lasting reads a duration of whole microseconds, at most longest.
func (r *Reader) lasting(what string, longest time.Duration, example string, into *time.Duration) Field {
	return func(n *yaml.Node) {
		text := r.Text(what, n)
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > longest || d%time.Microsecond != 0 {
			r.Fail(n, "%s %q must be a duration of up to %s, %s", what, Clip(text), short(longest), example)
		}
		*into = d
	}
}

// short writes a duration without zeros at the end: 10m rather than 10m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// A Candidate is the key candidate: limits that are evaluated beside those of a rule.
//
//	limits: ["20/10s", "75/1h"]
//	candidate:
//	  limits: ["10/10s", "40/1h"]
//	  enforce_percent: 10
//
// For a subject that is not enforced, the candidate is evaluated on a key of its own, as if it were the only limit. It limits an
// enforced subject on the rule's key. That key has what was admitted under either, so nothing is lost when a subject switches.
type Candidate struct {
	// Limits are valid for sash.NewPolicy with Options.
	Limits  []sash.Limit
	Options sash.Options
	// Percent is the percentage of subjects that are enforced: 0 to 100.
	Percent float64
}

// Enforced reports whether the candidate limits a subject. It depends only on the key and on Percent, so every
// instance returns the same, and an enforced subject stays enforced when Percent grows.
func (c *Candidate) Enforced(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return float64(binary.BigEndian.Uint32(sum[:]))/(1<<32) < c.Percent/100
}

// CandidateKey returns the key under which a candidate counts. No subject has it, since keys of subjects have an odd number of parts.
func CandidateKey(key string) string { return "candidate:" + key }

// CandidateMetric returns the name of a rule's candidate in statistics.
func CandidateMetric(metric string) string { return metric + ".candidate" }

// readCandidate reads the key candidate after the rule's own keys. Declared are the rule's options as written.
func (b *ruleBody) readCandidate(rule *Rule, declared sash.Options) {
	c := &ruleBody{Reader: b.Reader}
	percent := ""
	written := c.Fields(c)
	b.Mapping(b.Candidate, "candidate", map[string]Field{
		"limits": written["limits"], "algorithm": written["algorithm"], "resolution": written["resolution"],
		"enforce_percent": func(n *yaml.Node) { percent = b.Text("enforce_percent", n) },
	})
	switch {
	case rule.Shadow || rule.Quota:
		b.Fail(b.Candidate, "candidate beside shadow_mode or quota_mode: limits that do not bind need no candidate; put it into limits")
	case c.Limits == nil:
		b.Fail(b.Candidate, "candidate needs limits, such as limits: [\"10/1m\"]")
	}
	if b.Err != nil {
		return
	}
	of := &Rule{Options: declared, Cost: rule.Cost}
	if c.Algorithm != nil && c.Resolution == nil {
		of.Options.Resolution = 0
	}
	b.List(c.Limits, "limits", func(n *yaml.Node) { b.limit(n, of) })
	c.options(of)
	c.fit(c.Limits, of)
	rule.Candidate = &Candidate{Limits: of.Limits, Options: of.Options}
	if percent != "" {
		p, err := strconv.ParseFloat(strings.TrimSuffix(percent, "%"), 64)
		if err != nil || math.IsNaN(p) || p < 0 || p > 100 {
			b.Fail(b.Candidate, "enforce_percent %q must be a number from 0 to 100", Clip(percent))
		}
		rule.Candidate.Percent = p
	}
}
