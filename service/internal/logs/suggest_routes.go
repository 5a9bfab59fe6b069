package logs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
)

// mostRoutes is how many routes get limits of their own at most.
const mostRoutes = 4

// A byRoute is the JSON of limits by route. Routes are those with limits of their own, then everything else.
type byRoute struct {
	Routes   []routeLimits `json:"routes"`
	Affected int           `json:"clients_affected"`
	// Outcome is what they would have done. Its clients are counted once in each part.
	Outcome *replay.Outcome `json:"candidate"`
	Policy  string          `json:"policy,omitempty"` // the file
	Replay  string          `json:"replay,omitempty"` // the command that gives the same outcome
}

type routeLimits struct {
	Route    string   `json:"route"`
	Reason   string   `json:"reason,omitempty"`
	Factor   float64  `json:"factor,omitempty"`
	Requests int64    `json:"requests"`
	Clients  int      `json:"clients"`
	Limits   []string `json:"limits"`
	why      string
}

// divide proposes limits by route, and writes the configuration.
func (s *suggestFlags) divide(ctx context.Context, trace *replay.Trace, pair *replay.Suggestion, r *suggestReport) error {
	routes, err := trace.RoutesThatDiffer(ctx, pair, mostRoutes)
	if err != nil {
		return err
	}
	policy, division, err := s.fit(ctx, trace, pair, routes)
	if err != nil {
		return err
	}
	out := r.Outcomes[0]
	if len(policy.routes) == 0 { // one part, which has the pair
		division.Affected, division.Parts[0].Limits = pair.Affected, pair.Limits
	} else if out, err = s.outcome(ctx, trace, policy, division); err != nil {
		return err
	}
	if len(policy.routes) > 0 && s.caps.Requests > 0 && out.RefusedShare > s.caps.Requests { // then refuse nobody
		if pair, err = trace.Suggest(ctx, replay.Caps{}, pair.Burst.Window, pair.Sustained.Window); err != nil {
			return err
		}
		if policy, division, err = s.fit(ctx, trace, pair, policy.routes); err != nil {
			return err
		}
		if out, err = s.outcome(ctx, trace, policy, division); err != nil {
			return err
		}
	}
	r.ByRoute = &byRoute{Affected: division.Affected, Outcome: out, Routes: []routeLimits{}}
	for i, part := range division.Parts {
		l := routeLimits{Route: policy.name(i), Requests: part.Requests, Clients: part.Clients, Limits: limitTexts(part.Limits)}
		if i < len(policy.routes) {
			l.Reason, l.Factor, l.why = policy.routes[i].Reason.String(), policy.routes[i].Factor, why(&policy.routes[i])
		}
		r.ByRoute.Routes = append(r.ByRoute.Routes, l)
	}
	if s.policyFile == "" {
		return nil
	}
	r.ByRoute.Policy, r.ByRoute.Replay = s.policyFile, s.replayCommand(policy)
	return create(s.policyFile, policy.text(s.head(policy, r), func(part int) []sash.Limit { return division.Parts[part].Limits }))
}

// fit returns the configuration for routes, and the limits of its parts. It leaves out routes whose pattern covers many
// requests of others.
func (s *suggestFlags) fit(ctx context.Context, trace *replay.Trace, pair *replay.Suggestion, routes []replay.Route) (*proposedPolicy, *replay.Division, error) {
	for {
		policy, err := newPolicy(s.client(), routes)
		if err != nil {
			return nil, nil, err
		}
		division, err := trace.Divide(ctx, pair, policy.size(), policy.part)
		if err != nil {
			return nil, nil, err
		}
		wide := -1
		for i, r := range routes {
			if 10*r.Requests < 9*division.Parts[i].Requests {
				wide = i
			}
		}
		if wide < 0 {
			return policy, division, nil
		}
		routes = slices.Delete(slices.Clone(routes), wide, wide+1)
	}
}

// outcome replays the parts.
func (s *suggestFlags) outcome(ctx context.Context, trace *replay.Trace, policy *proposedPolicy, division *replay.Division) (*replay.Outcome, error) {
	divided, err := trace.Divided(ctx, policy.part, func(part int, client string) string { return fmt.Sprintf("%d %s", part, client) })
	if err != nil {
		return nil, err
	}
	candidate := replay.Candidate{Name: "by route"}
	for i, part := range division.Parts {
		candidate.Rules = append(candidate.Rules, replay.Rule{Name: policy.name(i), Limits: part.Limits})
	}
	name := func(subject string) string {
		number, client, _ := strings.Cut(subject, " ")
		part := 0
		_, _ = fmt.Sscan(number, &part)
		return s.names(client) + ", " + policy.name(part)
	}
	outcomes, err := divided.Run(ctx, []replay.Candidate{candidate}, &replay.RunOptions{Name: name})
	if err != nil {
		return nil, err
	}
	return outcomes[0], nil
}

var plainKey = regexp.MustCompile(`^[a-z_]+$`)

// client returns the key of the entry for the subject: the field of --key, or "client" for another expression.
func (s *suggestFlags) client() string {
	if plainKey.MatchString(s.expressions.Key) && s.expressions.Key != "path" && s.expressions.Key != "method" {
		return s.expressions.Key
	}
	return "client"
}

// entries returns the entries of a request, as --entry of sash-logs replay.
func (s *suggestFlags) entries(p *proposedPolicy) []string {
	subject := p.client + "=" + s.expressions.Key
	if len(p.routes) == 0 {
		return []string{subject}
	}
	return []string{"path=path", "method=method", subject}
}

// reading returns the flags that decide how the log is read and what counts, with their values.
func (s *suggestFlags) reading() (all [][2]string) {
	add := func(flag, value, usual string) {
		if value != usual {
			all = append(all, [2]string{flag, value})
		}
	}
	add("--format", s.format, "auto")
	add("--log-format", s.logFormat, "")
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		add("--field", name+"="+s.fields[name], "")
	}
	add("--trusted-proxies", strings.Join(s.trusted, ","), "")
	for _, pattern := range s.expressions.Routes {
		add("--route", pattern, "")
	}
	add("--where", s.expressions.Where, "")
	add("--cost", cmp.Or(s.expressions.Cost, "1"), "1")
	return all
}

// replayCommand returns the command that replays the file.
func (s *suggestFlags) replayCommand(p *proposedPolicy) string {
	words := []string{"sash-logs replay --policy", shellText(s.policyFile)}
	for _, e := range s.entries(p) {
		words = append(words, "--entry", shellText(e))
	}
	for _, f := range s.reading() {
		words = append(words, f[0], shellText(f[1]))
	}
	return strings.Join(append(words, "FILE"), " ")
}

// head is the comment at the head of the file.
func (s *suggestFlags) head(p *proposedPolicy, r *suggestReport) string {
	var keys []string
	for _, e := range s.entries(p) {
		key, value, _ := strings.Cut(e, "=")
		if value != key {
			key += ", which is " + printable(value) + ","
		}
		keys = append(keys, key)
	}
	counted := ""
	if s.expressions.Where != "" {
		counted = "# Only requests with " + printable(s.expressions.Where) + " were counted: send no others, or they are charged too.\n"
	}
	if cost := s.expressions.Cost; cost != "" && cost != "1" {
		counted += "# A request costs " + printable(cost) + " units: send them with it.\n"
	}
	return fmt.Sprintf(`# Proposed by sash-logs suggest for %d requests of %s, from %s to %s.
# A request has the entries %s in this order; a path is without its query.
# shadow_mode: nothing is refused, and what would have been is counted. Remove it to enforce a rule.
`, r.Requests, r.clients(int64(r.Clients)), r.First, r.Last, strings.Join(keys, ", ")) + counted
}

func routesText(t *text, r *byRoute, log *logReport) {
	if len(r.Routes) == 1 {
		t.say("\nNo route differs enough for limits of its own.")
	} else {
		t.say("\nBy route, each client counted in each apart ({id} stands for numbers, UUIDs and hashes):")
		table := t.table(0)
		for _, l := range r.Routes {
			if l.Requests > 0 {
				fmt.Fprintf(table, "  %s\t%s\t%d requests of %s\t%s\n", printable(l.Route), strings.Join(l.Limits, ","), l.Requests, log.clients(int64(l.Clients)), l.why)
			}
		}
		_ = table.Flush() // the text keeps the error
		t.say("would have refused %d of %d requests (%.2f%%), of %s (%.2f%%).", r.Outcome.Refused, r.Outcome.Requests, 100*r.Outcome.RefusedShare,
			log.clients(int64(r.Affected)), 100*float64(r.Affected)/float64(log.Clients))
	}
	if r.Policy == "" {
		return
	}
	t.say("\n%s has these limits in shadow mode: nothing is refused, and what would have been is counted.", r.Policy)
	t.say("  sash config check %s\n  %s\n  sash serve --config %s", shellText(r.Policy), r.Replay, shellText(r.Policy))
}
