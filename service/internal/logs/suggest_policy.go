package logs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/replay"
)

// policyDomain is the domain of the configurations that the command writes.
const policyDomain = "web"

// A proposedPolicy is a configuration in shadow mode: routes with limits of their own, below each path the other methods,
// and everything else. Without routes it has one rule. Its parts are numbered in this order.
type proposedPolicy struct {
	client string // the key of the entry for the subject
	routes []replay.Route
	paths  []string // of the routes, as patterns: in the order of the file
	cfg    *config.Config
	parts  map[*config.Rule]int
}

// newPolicy returns the configuration for routes, which are known to the parts of a log by [proposedPolicy.part].
func newPolicy(client string, routes []replay.Route) (*proposedPolicy, error) {
	p := &proposedPolicy{client: client, routes: routes}
	for _, r := range routes {
		if path := pathPattern(r.Path); !slices.Contains(p.paths, path) {
			p.paths = append(p.paths, path)
		}
	}
	// The first pattern of a file that matches counts, so the longest ones come first.
	slices.SortStableFunc(p.paths, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	order := []int{}
	some := []sash.Limit{sash.PerSecond(1)}
	text := p.text("", func(part int) []sash.Limit { order = append(order, part); return some })
	var err error
	if p.cfg, err = config.Parse("the proposed configuration", []byte(text)); err != nil {
		return nil, err
	}
	p.parts = make(map[*config.Rule]int)
	for i, rule := range p.cfg.Rules() {
		p.parts[rule] = order[i]
	}
	return p, nil
}

// size returns the number of parts.
func (p *proposedPolicy) size() int { return len(p.routes) + len(p.paths) + 1 }

// part returns the part that a route of a log is in, as the service would choose it. A request without a method or a path
// lacks an entry, so no part limits it, unless there is but one.
func (p *proposedPolicy) part(route string) int {
	method, path, _ := strings.Cut(route, " ")
	if len(p.routes) > 0 && (path == "" || strings.HasPrefix(method, "/")) {
		return -1
	}
	if !strings.HasPrefix(path, "/") {
		return p.size() - 1
	}
	entries := []config.Entry{{Key: "path", Value: path}, {Key: "method", Value: method}, {Key: p.client, Value: "x"}}
	if len(p.routes) == 0 {
		return 0
	}
	rule, _ := p.cfg.Match(policyDomain, entries) // every request matches
	return p.parts[rule]
}

// name returns a part as outputs name it.
func (p *proposedPolicy) name(part int) string {
	switch n := len(p.routes); {
	case part < n:
		return p.routes[part].Method + " " + p.routes[part].Path
	case part < n+len(p.paths):
		return "other methods of " + p.paths[part-n]
	}
	return "everything else"
}

var variable = regexp.MustCompile(`\{[^}/]*\}`)

// pathPattern returns the pattern of a configuration for a path in which {…} stands for any text.
func pathPattern(path string) string { return variable.ReplaceAllString(path, "*") }

// text returns the configuration with a comment at its head and the limits of each part.
func (p *proposedPolicy) text(head string, limits func(part int) []sash.Limit) string {
	var b strings.Builder
	b.WriteString(head + "domain: " + policyDomain + "\ndescriptors:\n")
	// A descriptor of the given depth, whose values count together if there are several.
	descriptor := func(depth int, key, value string) {
		in := strings.Repeat("    ", depth) + "  "
		fmt.Fprintf(&b, "%s- key: %s\n", in, quoted(key))
		if value != "" {
			fmt.Fprintf(&b, "%s  value: %s\n", in, quoted(value))
		}
		if strings.Contains(value, "*") {
			fmt.Fprintf(&b, "%s  share_threshold: true\n", in)
		}
	}
	rule := func(depth, part int) {
		descriptor(depth, p.client, "")
		in := strings.Repeat("    ", depth) + "    "
		fmt.Fprintf(&b, "%slimits: [%s]\n%sshadow_mode: true\n", in, strings.Join(eachQuoted(limitTexts(limits(part))), ", "), in)
	}
	below := func(depth int) { fmt.Fprintf(&b, "%s    descriptors:\n", strings.Repeat("    ", depth)) }
	if len(p.routes) == 0 {
		rule(0, 0)
		return b.String()
	}
	for i, path := range p.paths {
		descriptor(0, "path", path)
		below(0)
		for j, r := range p.routes {
			if pathPattern(r.Path) == path {
				fmt.Fprintf(&b, "      # %s\n", why(&r))
				descriptor(1, "method", r.Method)
				below(1)
				rule(2, j)
			}
		}
		b.WriteString("      # Other methods.\n")
		descriptor(1, "method", "*")
		below(1)
		rule(2, len(p.routes)+i)
	}
	b.WriteString("  # Everything else, counted together.\n")
	descriptor(0, "path", "*")
	below(0)
	descriptor(1, "method", "*")
	below(1)
	rule(2, p.size()-1)
	return b.String()
}

// quoted writes a string as YAML does in double quotes, which have the escapes of Go for text.
func quoted(s string) string { return strconv.Quote(s) }

func eachQuoted(all []string) []string {
	for i := range all {
		all[i] = quoted(all[i])
	}
	return all
}

// why returns the reason for which a route has limits of its own.
func why(r *replay.Route) string {
	switch r.Reason {
	case replay.Drives:
		return fmt.Sprintf("without it the general limit is %.1f times lower", r.Factor)
	case replay.Writes:
		return fmt.Sprintf("writes, and clients need it %.1f times less than everything", r.Factor)
	case replay.Slow:
		return fmt.Sprintf("%.1f times as slow as the average", r.Factor)
	}
	return fmt.Sprintf("%.1f times as large as the average", r.Factor)
}

// create writes a new file. One that is there may have been edited since it was proposed.
func create(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a configuration has no secrets
	if errors.Is(err, fs.ErrExist) {
		return fileExists(name)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return cmp.Or(err, file.Close())
}

func fileExists(name string) error {
	return fmt.Errorf("--write-policy %s: the file exists; remove it, or choose another name", name)
}
