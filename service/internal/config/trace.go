package config

import "fmt"

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
	in := c.domains[domain]
	here := in.descriptors
	for _, e := range entries {
		step := Step{Entry: e}
		d := in.find(here, e)
		if d != nil {
			step.Matched = quote(d.entry.Key)
			if d.entry.Value != "" {
				step.Matched += "=" + quote(d.entry.Value)
			}
			switch {
			case d.entry == e && e.Value != "":
				step.How = "exact value"
			case d.wildcard != nil:
				step.How = "wildcard"
			default:
				step.How = "key alone"
			}
		}
		steps = append(steps, step)
		if d == nil {
			break
		}
		here = d.children
	}
	return steps, found, nil
}

// A Change is a rule that differs between two configurations. Before is empty if the rule is new, After if it is gone.
type Change struct {
	Rule, Before, After string
}

// Diff returns the rules that differ: first those of the new configuration in its order, then removed ones in the
// order of the old configuration.
func Diff(before, after *Config) []Change {
	was := make(map[string]string)
	for _, r := range before.rules {
		was[r.String()] = r.Describe()
	}
	var changes []Change
	is := make(map[string]bool)
	for _, r := range after.rules {
		name := r.String()
		is[name] = true
		if old, text := was[name], r.Describe(); old != text {
			changes = append(changes, Change{name, old, text})
		}
	}
	for _, r := range before.rules {
		if name := r.String(); !is[name] {
			changes = append(changes, Change{name, was[name], ""})
		}
	}
	return changes
}

// String returns the change as one line: "+ rule: …", "- rule: …" or "~ rule: … -> …".
func (c Change) String() string {
	switch {
	case c.Before == "":
		return fmt.Sprintf("+ %s: %s", c.Rule, c.After)
	case c.After == "":
		return fmt.Sprintf("- %s: %s", c.Rule, c.Before)
	}
	return fmt.Sprintf("~ %s: %s -> %s", c.Rule, c.Before, c.After)
}
