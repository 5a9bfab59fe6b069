package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
)

// A Candidate is the key candidate: limits that are evaluated beside those of a rule.
//
//	limits: ["20/10s", "75/1h"]
//	candidate:
//	  limits: ["10/10s", "40/1h"]
//	  enforce_percent: 10
//
// A subject that is not enforced is limited by the rule's limits. The candidate is evaluated on a key of its own, as if
// it were the only limit. An enforced subject is limited by the candidate instead of the rule's limits, on the rule's
// key. That key has what was admitted to the subject under either, so nothing is lost when a subject switches, or when
// the candidate becomes the rule's limits.
type Candidate struct {
	// Limits are valid for sash.NewPolicy with Options.
	Limits  []sash.Limit
	Options sash.Options
	// Percent is the percentage of subjects that are enforced: 0 to 100.
	Percent float64
}

// Enforced reports whether the candidate limits a subject. It depends only on the key and Percent: every instance
// returns the same, and an enforced subject stays enforced when Percent grows.
func (c *Candidate) Enforced(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return float64(binary.BigEndian.Uint32(sum[:]))/(1<<32) < c.Percent/100
}

// CandidateKey returns the key under which a candidate counts what it would have admitted to a subject. No subject has
// that key: keys of subjects have an odd number of parts.
func CandidateKey(key string) string { return "candidate:" + key }

// CandidateMetric returns the name in statistics of the candidate of a rule.
func CandidateMetric(metric string) string { return metric + ".candidate" }

// readCandidate reads the key candidate of a rule whose own keys have been read. Declared are the rule's options as
// written, which are the defaults of the candidate's.
func (b *ruleBody) readCandidate(rule *Rule, declared sash.Options) error {
	c := &ruleBody{reader: b.reader}
	var percent string
	written := c.fields(c)
	err := b.mapping(b.Candidate, "candidate", map[string]field{
		"limits": written["limits"], "algorithm": written["algorithm"], "resolution": written["resolution"],
		"enforce_percent": b.text("enforce_percent", &percent),
	})
	if err != nil {
		return err
	}
	if rule.Shadow || rule.Quota {
		return b.errorf(b.Candidate, "candidate beside shadow_mode or quota_mode: limits that do not bind need no candidate; put it into limits")
	}
	if c.Limits == nil {
		return b.errorf(b.Candidate, "candidate needs limits, such as limits: [\"10/1m\"]")
	}
	of := &Rule{Options: declared}
	if c.Algorithm != nil && c.Resolution == nil {
		of.Options.Resolution = 0
	}
	if err := b.list(c.Limits, "limits", func(n *yaml.Node) error { return b.limit(n, of) }); err != nil {
		return err
	}
	if err := c.options(of); err != nil {
		return err
	}
	of.Cost = rule.Cost
	if err := c.fit(c.Limits, of); err != nil {
		return err
	}
	rule.Candidate = &Candidate{Limits: of.Limits, Options: of.Options}
	if percent != "" {
		p, err := strconv.ParseFloat(strings.TrimSuffix(percent, "%"), 64)
		if err != nil || math.IsNaN(p) || p < 0 || p > 100 {
			return b.errorf(b.Candidate, "enforce_percent %q must be a number from 0 to 100", clip(percent))
		}
		rule.Candidate.Percent = p
	}
	return nil
}

// Describe returns a description in one line: "candidate 5/1m by sliding-log, enforced for 10%".
func (c *Candidate) Describe() string {
	text := "candidate " + describeLimits(c.Limits, c.Options)
	if c.Percent == 0 {
		text += ", not enforced"
	} else {
		text += fmt.Sprintf(", enforced for %g%%", c.Percent)
	}
	return text
}
