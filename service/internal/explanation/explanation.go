// Package explanation is the JSON of why a request is answered as it is: the ports of the service that tell it tell it
// alike.
package explanation

import (
	"fmt"
	"strconv"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/verdict"
)

// A Body is an answer that explains.
type Body struct {
	// Summary says in a sentence what comes of the request, and why.
	Summary string `json:"summary"`
	// Steps is how each entry was matched, up to the first that matches nothing.
	Steps []step `json:"steps"`
	// Rule is where the rule is, what it says, whom it charges and how statistics name it; null when the
	// request meets none.
	Rule *rule `json:"rule"`
	// Cost is the units that the request asks for.
	Cost int64 `json:"cost"`
	// Usage has one element a limit, and is empty when the store was not asked.
	Usage []usage `json:"usage"`
	// Verdict is what POST /v1/peek tells; null when the cost can never fit.
	Verdict *verdict.Verdict `json:"verdict"`
}

type step struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Matched string `json:"matched"` // as the configuration has it; empty when nothing fits
	How     string `json:"how"`
}

type rule struct {
	Path    string `json:"path"`
	Limits  string `json:"limits"`
	Subject string `json:"subject"`
	Metric  string `json:"metric"`
}

// A usage is what a limit holds now. Durations are seconds.
type usage struct {
	Name         string          `json:"name"`
	Units        int64           `json:"units"`
	Used         int64           `json:"used"`
	Remaining    int64           `json:"remaining"`
	Room         bool            `json:"room"` // for the cost
	ReleaseAfter verdict.Seconds `json:"release_after"`
	ResetAfter   verdict.Seconds `json:"reset_after"`
}

// Of returns the body that tells an explanation.
func Of(e decide.Explanation) Body {
	body := Body{Summary: summary(&e), Steps: []step{}, Cost: e.Cost, Usage: []usage{}}
	for _, s := range e.Steps {
		body.Steps = append(body.Steps, step{s.Entry.Key, s.Entry.Value, s.Matched, s.How})
	}
	if found := e.Found; found.Rule != nil {
		body.Rule = &rule{Path: found.Rule.String(), Limits: found.Rule.Describe(), Subject: found.Key, Metric: found.Metric}
	}
	for i := range e.Verdict.Limits { // none while the subject is banned
		l := &e.Limits[i]
		body.Usage = append(body.Usage, usage{
			Name: l.Limit.Name, Units: l.Limit.Units, Used: l.Limit.Units - l.Remaining, Remaining: l.Remaining,
			Room: l.Remaining >= e.Cost, ReleaseAfter: verdict.Seconds(l.ReleaseAfter), ResetAfter: verdict.Seconds(l.ResetAfter),
		})
	}
	if e.Never == nil {
		body.Verdict = &e.Verdict
	}
	return body
}

// summary puts an explanation into a sentence.
func summary(e *decide.Explanation) string {
	last := e.Steps[len(e.Steps)-1] // a request has an entry
	v := &e.Verdict
	switch {
	case e.Never != nil:
		return "never allowed: " + e.Never.Error()
	case v.RefusedBy != nil && v.Shadow:
		return fmt.Sprintf("allowed, because the rule is only tried out: %s has no room for %d", *v.RefusedBy, e.Cost)
	case v.RefusedBy != nil && len(v.Limits) == 0:
		return "refused: an operator has banned the subject"
	case v.RefusedBy != nil:
		return fmt.Sprintf("refused: %s has no room for %d", *v.RefusedBy, e.Cost)
	case e.Found.Rule == nil && last.Matched == "":
		return fmt.Sprintf("allowed, and not counted: no descriptor fits entry %d, %s=%s", len(e.Steps), quote(last.Entry.Key), quote(last.Entry.Value))
	case e.Found.Rule == nil:
		return "allowed, and not counted: the descriptor " + last.Matched + " has no limits"
	case e.Found.Rule.Unlimited:
		return "allowed, and not counted: the rule is unlimited"
	case len(v.Limits) == 0:
		return "allowed, and not counted: the rule is only tried out, and can tell nothing now"
	case v.Source != nil && *v.Source == sash.FromPolicy.String():
		return "allowed, and not counted: the store is unavailable, and the rule is open"
	}
	return fmt.Sprintf("allowed: every limit has room for %d", e.Cost)
}

// quote quotes what may be long.
func quote(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return strconv.Quote(s)
}
