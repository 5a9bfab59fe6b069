package config

import (
	"fmt"
	"io"
	"strings"

	"example.com/sash"
)

// Metric returns the name of the rule in statistics: the domain and the keys, with the values that the configuration
// specifies.
func (r *Rule) Metric() string { return r.Domain + "." + r.Label }

// Describe returns a description of the rule in one line: "5/1m by sliding-log, shadow_mode".
func (r *Rule) Describe() string {
	var words []string
	switch {
	case r.Unlimited:
		words = append(words, "unlimited")
	case r.Refuses:
		words = append(words, "refuses everything")
	case r.Reserve > 0:
		words = append(words, r.usable())
	default:
		words = append(words, describeLimits(r.Limits, r.Options))
	}
	if r.Cost > 1 {
		words = append(words, fmt.Sprintf("cost %d", r.Cost))
	}
	if r.Options.CountRefused {
		words = append(words, "count_refused")
	}
	if r.Options.Block != (sash.Block{}) {
		words = append(words, describeBlock(r.Options.Block))
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
	if len(r.Secrets) > 0 {
		words = append(words, "secret "+strings.Join(r.Secrets, " and "))
	}
	if place := r.Place.Describe(); place != "" {
		words = append(words, place)
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
	if r.Candidate != nil {
		words = append(words, r.Candidate.Describe())
	}
	return strings.Join(words, ", ")
}

// describeLimits returns limits and their algorithm as text: "5/1m and 60/1h by sliding-log".
func describeLimits(limits []sash.Limit, opts sash.Options) string {
	var texts []string
	for _, l := range limits {
		text := l.Name
		l.Name = ""
		if text == "" {
			text = l.String()
		} else if text != l.String() && !strings.Contains(text, "/") {
			text = l.String() + " (" + text + ")"
		}
		texts = append(texts, text)
	}
	by := opts.Algorithm.String()
	if opts.Resolution > 0 {
		by += " of " + opts.Resolution.String()
	}
	return strings.Join(texts, " and ") + " by " + by
}

// Dump writes the rules in the order of the configuration: for each limit the line that Envoy's rate limit service writes,
// and before them a comment with what that line cannot say.
func (c *Config) Dump(w io.Writer) error {
	for _, r := range c.rules {
		if _, err := fmt.Fprintf(w, "# %s: %s\n", r.Metric(), r.Describe()); err != nil {
			return err
		}
		limits := r.Limits
		if r.Unlimited {
			limits = []sash.Limit{{}}
		}
		for _, l := range limits {
			_, err := fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n",
				r.Metric(), unitOf(l), l.Units, r.Shadow, r.Quota)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unitOf returns the unit of Envoy's service that is a limit's window, or UNKNOWN.
func unitOf(l sash.Limit) string {
	for name, window := range envoyUnits {
		if l.Period == 0 && l.Window == window {
			return name
		}
	}
	return "UNKNOWN"
}
