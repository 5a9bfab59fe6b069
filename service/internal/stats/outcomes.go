package stats

import (
	"sync/atomic"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

// banned is a decide.Outcome that only this package knows: a refusal because of a ban. Metrics count it as Refused.
const banned = decide.Outcomes

// outcomes counts by outcome, banned included, and by where the answer came from.
type outcomes [banned + 1][decide.Origins]atomic.Uint64

// requestOutcome is o.Outcome, which the caller knows, with bans apart from other refusals, and Shadowed where a part had
// no room that does not bind.
func requestOutcome(o *decide.Observation, outcome decide.Outcome) decide.Outcome {
	if o.Err != nil {
		return outcome
	}
	for i := range o.Answers {
		switch a := &o.Answers[i]; {
		case a.BannedBy != nil:
			return banned
		case a.Refused && outcome == decide.Allowed:
			outcome = decide.Shadowed
		}
	}
	return outcome
}

// partOutcome is o.OutcomeOf, with bans apart from other refusals.
func partOutcome(o *decide.Observation, i int) decide.Outcome {
	if outcome := o.OutcomeOf(i); outcome != decide.Refused || o.Answers[i].BannedBy == nil {
		return outcome
	}
	return banned
}

// of returns how often a decision had an outcome.
func (c *outcomes) of(outcome decide.Outcome) (n uint64) {
	for origin := range c[outcome] {
		n += c[outcome][origin].Load()
	}
	return n
}

// counts returns the counts by outcome.
func (c *outcomes) counts() Counts {
	n := func(outcome decide.Outcome) int64 { return int64(c.of(outcome)) }
	counts := Counts{
		Allowed: n(decide.Allowed), Uncounted: n(decide.Uncounted), Refused: n(decide.Refused), Banned: n(banned),
		Shadow: n(decide.Shadowed), Failed: n(decide.Failed), Invalid: n(decide.Invalid),
	}
	for outcome := range c {
		counts.Local += int64(c[outcome][sash.FromLocal].Load())
	}
	return counts
}
