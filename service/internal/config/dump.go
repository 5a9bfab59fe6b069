package config

import (
	"fmt"
	"io"
	"strings"
)

// Metric names the rule in statistics: the domain and the keys, with the values that the configuration gives.
func (r *Rule) Metric() string {
	var b strings.Builder
	b.WriteString(r.Domain)
	for _, e := range r.Path {
		b.WriteString("." + e.Key)
		if e.Value != "" {
			b.WriteString("_" + e.Value)
		}
	}
	return b.String()
}

// Describe says what the rule does, in one line: "5/1m by sliding-log, shadow_mode".
func (r *Rule) Describe() string {
	var words []string
	switch {
	case r.Unlimited:
		words = append(words, "unlimited")
	case r.Refuses:
		words = append(words, "refuses everything")
	default:
		var limits []string
		for _, l := range r.Limits {
			text := l.Name
			l.Name = ""
			if text == "" {
				text = l.String()
			} else if text != l.String() && !strings.Contains(text, "/") {
				text = l.String() + " (" + text + ")"
			}
			limits = append(limits, text)
		}
		by := r.Options.Algorithm.String()
		if r.Options.Resolution > 0 {
			by += " of " + r.Options.Resolution.String()
		}
		words = append(words, strings.Join(limits, " and ")+" by "+by)
	}
	if r.Cost > 1 {
		words = append(words, fmt.Sprintf("cost %d", r.Cost))
	}
	if r.Options.CountRefused {
		words = append(words, "count_refused")
	}
	if r.Shadow {
		words = append(words, "shadow_mode")
	}
	if r.Quota {
		words = append(words, "quota_mode")
	}
	if r.Detailed {
		words = append(words, "detailed_metric")
	}
	if modes := describeModes(&r.OnUnavailable); modes != "" {
		words = append(words, "on_unavailable "+modes)
	}
	if r.OnUnavailable.Guard {
		words = append(words, "guard")
	}
	if len(r.Replaces) > 0 {
		words = append(words, "replaces "+strings.Join(r.Replaces, " and "))
	}
	return strings.Join(words, ", ")
}

// Dump writes one line a rule, in the order of the configuration.
func (c *Config) Dump(w io.Writer) error {
	for _, r := range c.rules {
		if _, err := fmt.Fprintf(w, "%s: %s\n", r.Metric(), r.Describe()); err != nil {
			return err
		}
	}
	return nil
}
