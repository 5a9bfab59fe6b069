package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
	"example.com/sash/failover"
)

// modes are the failure modes of a configuration.
var modes = map[string]failover.Mode{"open": failover.Open, "local": failover.Local, "closed": failover.Closed}

// unavailable reads on_unavailable: one mode for every call, or modes by cost.
//
//	on_unavailable: local
//	on_unavailable: {1: open, 20: local, else: closed}
//
// The second is open for calls of 1 unit, local up to 20 units, and closed above. Without else, costs above the last
// one are closed.
func (b *ruleBody) unavailable(n *yaml.Node, rule *Rule) error {
	switch n = resolve(n); n.Kind {
	case yaml.ScalarNode:
		return b.mode(n, 0, rule)
	case yaml.MappingNode:
	default:
		return b.errorf(n, "on_unavailable must be open, local or closed, or a mode by cost: {1: open, 20: local, else: closed}")
	}
	if len(n.Content) == 0 {
		return b.errorf(n, "on_unavailable is empty: omit it for closed")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if err := b.upTo(n.Content[i], n.Content[i+1], rule); err != nil {
			return err
		}
	}
	return nil
}

// upTo reads the mode for calls up to a cost.
func (b *ruleBody) upTo(key, mode *yaml.Node, rule *Rule) error {
	rules := rule.OnUnavailable.Rules
	if len(rules) > 0 && rules[len(rules)-1].MaxCost == 0 {
		return b.errorf(key, "on_unavailable: else applies to all other costs and must come last")
	}
	if key.Value == "else" {
		return b.mode(mode, 0, rule)
	}
	cost, err := strconv.ParseInt(strings.ReplaceAll(key.Value, "_", ""), 10, 64)
	if key.Kind != yaml.ScalarNode || err != nil || cost < 1 {
		return b.errorf(key, "on_unavailable: %q must be else or the highest cost of a mode, a whole number of at least 1", clip(key.Value))
	}
	if len(rules) > 0 && cost <= rules[len(rules)-1].MaxCost {
		return b.errorf(key, "on_unavailable: costs must increase, but %d comes after %d", cost, rules[len(rules)-1].MaxCost)
	}
	return b.mode(mode, cost, rule)
}

func (b *ruleBody) mode(n *yaml.Node, maxCost int64, rule *Rule) error {
	n = resolve(n)
	mode, known := modes[n.Value]
	if n.Kind != yaml.ScalarNode || !known {
		return b.errorf(n, "on_unavailable %q must be open, local or closed", clip(n.Value))
	}
	if mode == failover.Open && b.Guard {
		return b.errorf(n, "on_unavailable is open beside guard: an attacker that brings the store down could guess without a limit; use local or closed")
	}
	rule.OnUnavailable.Rules = append(rule.OnUnavailable.Rules, failover.Rule{MaxCost: maxCost, Mode: mode})
	return nil
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

// block reads the key block: how long a subject stays out that is refused too often.
//
//	block: 10m
//	block: {refusals: 5, window: 1m, for: 10m}
//
// Both are the same: five refusals within a minute begin a block of ten minutes.
func (b *ruleBody) block(n *yaml.Node, into *sash.Block) error {
	block := sash.Block{Refusals: blockRefusals, Window: blockWindow}
	switch n = resolve(n); n.Kind {
	case yaml.ScalarNode:
		if err := b.lasting("block", mostBlockFor, blockForms, &block.For)(n); err != nil {
			return err
		}
	case yaml.MappingNode:
		refusals := int64(blockRefusals)
		err := b.mapping(n, "block", map[string]field{
			"refusals": b.units("refusals", &refusals),
			"window":   b.lasting("window", mostBlockWindow, "such as 1m", &block.Window),
			"for":      b.lasting("for", mostBlockFor, "such as 10m", &block.For),
		})
		switch {
		case err != nil:
			return err
		case refusals > mostRefusals:
			return b.errorf(n, "block after %d refusals: refusals is 1 to %d", refusals, mostRefusals)
		case block.For == 0:
			return b.errorf(n, "block needs for, how long a subject stays out: {refusals: %d, window: %s, for: 10m}", refusals, short(block.Window))
		}
		block.Refusals = int(refusals)
	default:
		return b.errorf(n, "block must be how long a subject stays out, %s", blockForms)
	}
	*into = block
	return nil
}

// lasting reads a duration of whole microseconds, up to the longest.
func (r *reader) lasting(what string, longest time.Duration, example string, into *time.Duration) field {
	return func(n *yaml.Node) error {
		var text string
		if err := r.text(what, &text)(n); err != nil {
			return err
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > longest || d%time.Microsecond != 0 {
			return r.errorf(n, "%s %q must be a duration of up to %s, %s", what, clip(text), short(longest), example)
		}
		*into = d
		return nil
	}
}

// describeBlock returns a block in a few words: "block 10m after 5 refusals in 1m".
func describeBlock(b sash.Block) string {
	times := "refusals"
	if b.Refusals == 1 {
		times = "refusal"
	}
	return fmt.Sprintf("block %s after %d %s in %s", short(b.For), b.Refusals, times, short(b.Window))
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
