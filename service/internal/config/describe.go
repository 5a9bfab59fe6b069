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
	default:
		words = append(words, describeLimits(r.Limits, r.Options))
	}
	optional := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	place, modes := r.Place.Describe(), describeModes(&r.OnUnavailable)
	optional(r.Cost > 1, "cost %d", r.Cost)
	optional(r.Options.CountRefused, "count_refused")
	optional(r.SparesRefused, "count_refused: false")
	optional(r.RefundWithin > 0, "refund_within %s", short(r.RefundWithin))
	optional(r.Options.Block != sash.Block{}, "%s", describeBlock(r.Options.Block))
	optional(r.MaxWait != DefaultMaxWait && r.Limited(), "max_wait %s", short(r.MaxWait))
	optional(r.Shadow, "shadow_mode")
	optional(r.Quota, "quota_mode")
	optional(r.Detailed, "detailed_metric")
	optional(len(r.Secrets) > 0, "secret %s", strings.Join(r.Secrets, " and "))
	optional(place != "", "%s", place)
	optional(modes != "", "on_unavailable %s", modes)
	optional(r.OnUnavailable.Guard, "guard")
	optional(len(r.Replaces) > 0, "replaces %s", strings.Join(r.Replaces, " and "))
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

// A Step describes how one entry of a request was matched.
type Step struct {
	Entry Entry
	// Matched is the matching descriptor at this level, such as "user", "user=vip" or "path=/api/*"; empty if none
	// matches.
	Matched string
	// How is the kind of match: "exact value", "wildcard" or "key alone".
	How string
}

// Trace returns how a request is matched, one step per entry up to the first without a match. The error is
// ErrUnknownDomain.
func (c *Config) Trace(domain string, entries []Entry) ([]Step, Found, error) {
	found, err := c.Find(domain, entries)
	if err != nil {
		return nil, Found{}, err
	}
	var steps []Step
	path := c.domains[domain].walk(entries, nil)
	for i, d := range path {
		how := "key alone"
		switch {
		case d.entry == entries[i] && d.entry.Value != "":
			how = "exact value"
		case d.wildcard != nil:
			how = "wildcard"
		}
		steps = append(steps, Step{entries[i], spell(d.entry), how})
	}
	if len(path) < len(entries) {
		steps = append(steps, Step{Entry: entries[len(path)]})
	}
	return steps, found, nil
}

// Removed returns the rules of a configuration that another one does not have, in their order.
func Removed(before, after *Config) []string {
	stays := make(map[string]bool)
	for _, r := range after.rules {
		stays[r.String()] = true
	}
	var removed []string
	for _, r := range before.rules {
		if name := r.String(); !stays[name] {
			removed = append(removed, name)
		}
	}
	return removed
}
