package config

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
)

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
func (b *ruleBody) readBlock(rule *Rule) error {
	if b.block == nil {
		return nil
	}
	block := sash.Block{Refusals: blockRefusals, Window: blockWindow}
	n := resolve(b.block)
	switch n.Kind {
	case yaml.ScalarNode:
		if err := b.lasting(n, "block", mostBlockFor, blockForms, &block.For)(n); err != nil {
			return err
		}
	case yaml.MappingNode:
		refusals := int64(blockRefusals)
		err := b.mapping(n, "block", map[string]field{
			"refusals": b.units("refusals", &refusals),
			"window":   b.lasting(n, "window", mostBlockWindow, "such as 1m", &block.Window),
			"for":      b.lasting(n, "for", mostBlockFor, "such as 10m", &block.For),
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
	rule.Options.Block = block
	return nil
}

// lasting reads a duration of whole microseconds, up to the longest.
func (r *reader) lasting(at *yaml.Node, what string, longest time.Duration, example string, into *time.Duration) field {
	return func(n *yaml.Node) error {
		var text string
		if err := r.text(what, &text)(n); err != nil {
			return err
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > longest || d%time.Microsecond != 0 {
			return r.errorf(at, "%s %q must be a duration of up to %s, %s", what, clip(text), short(longest), example)
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
