package wire

import (
	"fmt"
	"strconv"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// An Explanation is why a request is answered as it is.
type Explanation struct {
	// Summary says in a sentence what the request is answered, and why.
	Summary string `json:"summary"`
	// Steps is how each entry was matched, up to the first that matches nothing.
	Steps []Step `json:"steps"`
	// Rule is the rule that matched; null when none did.
	Rule *Matched `json:"rule"`
	// Cost is the units that the request asks for.
	Cost int64 `json:"cost"`
	// Usage has one element a limit, and is empty when the store was not asked, or did not answer.
	Usage []Usage `json:"usage"`
	// Decision is what POST /v1/peek answers; null when the cost can never fit.
	Decision *Decision `json:"verdict"`
}

// A Step is how one entry was matched.
type Step struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Matched string `json:"matched"` // as the configuration has it; empty when nothing fits
	How     string `json:"how"`
}

// A Matched is the rule of a request: where it is, its limits, whom it charges and its name in statistics.
type Matched struct {
	Path    string `json:"path"`
	Limits  string `json:"limits"`
	Subject string `json:"subject"`
	Metric  string `json:"metric"`
}

// ExplanationOf returns an explanation as JSON has it.
func ExplanationOf(e *decide.Explanation) Explanation {
	body := Explanation{Summary: summary(e), Steps: []Step{}, Cost: e.Answer.Cost, Usage: []Usage{}}
	for _, s := range e.Steps {
		body.Steps = append(body.Steps, Step{s.Entry.Key, s.Entry.Value, s.Matched, s.How})
	}
	if found := e.Found; found.Rule != nil {
		body.Rule = &Matched{Path: found.Rule.String(), Limits: found.Rule.Describe(), Subject: found.Key, Metric: found.Metric}
	}
	if e.Answer.BannedBy == nil {
		body.Usage = UsageOf(&e.Answer)
		for i := range body.Usage {
			room := *body.Usage[i].Remaining >= e.Answer.Cost
			body.Usage[i].Room = &room
		}
	}
	if e.Never == nil {
		d := AnswerOf(&e.Answer)
		body.Decision = &d
	}
	return body
}

// summary puts an explanation into a sentence.
func summary(e *decide.Explanation) string {
	last := e.Steps[len(e.Steps)-1] // a request has an entry
	a := &e.Answer
	switch {
	case e.Never != nil:
		return "never allowed: " + e.Never.Error()
	case a.BannedBy != nil:
		return "refused: an operator has banned " + config.Key(a.BannedBy.Domain, a.BannedBy.Entries)
	case a.Refused && a.Soft() && a.Blocked:
		return "allowed, because the rule is only tried out: the subject is blocked"
	case a.Refused && a.Blocked:
		return "refused: the subject is blocked, because it was refused too often"
	case a.Refused && a.Soft() && len(a.Limits) > 0:
		return fmt.Sprintf("allowed, because the rule is only tried out: %s has no room for %d", a.RefusedBy.Limit.Name, a.Cost)
	case a.Refused && !a.Soft():
		return fmt.Sprintf("refused: %s has no room for %d", a.RefusedBy.Limit.Name, a.Cost)
	case e.Found.Rule == nil && last.Matched == "":
		return fmt.Sprintf("allowed, and not counted: no descriptor fits entry %d, %s=%s", len(e.Steps), quote(last.Entry.Key), quote(last.Entry.Value))
	case e.Found.Rule == nil:
		return "allowed, and not counted: the descriptor " + last.Matched + " has no limits"
	case e.Found.Rule.Unlimited && len(a.Limits) == 0:
		return "allowed, and not counted: the rule is unlimited"
	case len(a.Limits) == 0:
		return "allowed, and not counted: the rule is only tried out, and nothing is known of it now"
	case a.Source == sash.FromPolicy:
		return "allowed, and not counted: the store is unavailable, and the rule is open"
	}
	return fmt.Sprintf("allowed: every limit has room for %d", a.Cost)
}

// quote quotes what may be long.
func quote(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return strconv.Quote(s)
}
