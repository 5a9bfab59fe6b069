package config

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"example.com/sash"
)

// reserved reads the key reserve_below. Calls of the descriptor count under the descriptor above it, on the same
// subject, and leave the last part of each of its limits to other calls.
//
//	key: quota
//	limits: ["10000/day@America/Los_Angeles"]
//	descriptors:
//	- {key: class, value: cron, reserve_below: 5%}
//
// Requests with quota alone may use all of it. Requests with quota and class=cron are admitted while they keep the use
// within 95 %. So a cron job stops before the quota is used up, and users continue.
func (b *ruleBody) reserved(rule, above *Rule) error {
	n := b.reserveBelow
	for _, stray := range [...]bool{b.rateLimit != nil, b.limits != nil, b.algorithm != nil, b.resolution != nil, b.candidate != nil, b.countRefused, b.block != nil, b.strayPlace() != nil} {
		if stray {
			return b.errorf(n, "reserve_below uses the limits of the descriptor above it: remove limits, rate_limit, algorithm, resolution, count_refused, block, scope, lease and candidate")
		}
	}
	switch {
	case above == nil || !above.Limited():
		return b.errorf(n, "reserve_below needs a parent descriptor with limits: here there is nothing to reserve")
	case above.Reserve > 0:
		return b.errorf(n, "reserve_below below another reserve_below: put both directly below the descriptor with the limits")
	case above.Options.Block != sash.Block{}:
		return b.errorf(n, "reserve_below below a descriptor with block: refusals of these calls would keep out those that the reserve is for; remove one of the two")
	}
	var text string
	if err := b.text("reserve_below", &text)(n); err != nil {
		return err
	}
	number, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !isPercent || percent <= 0 || percent >= 100 || math.IsNaN(percent) {
		return b.errorf(n, "reserve_below %q must be the percentage of each limit that is left to other calls, such as 5%%", clip(text))
	}
	rule.Reserve, rule.Options, rule.Cost, rule.Place = percent, above.Options, above.Cost, above.Place
	b.guard = b.guard || above.OnUnavailable.Guard // they guard the same secret
	if b.onUnavailable == nil {
		rule.OnUnavailable = above.OnUnavailable
	}
	if err := b.options(rule); err != nil {
		return err
	}
	if own, err := b.wantsOwn(rule); err != nil {
		return err
	} else if above, _ := b.wantsOwn(above); own != above {
		return b.errorf(n, "on_unavailable is local for only one of reserve_below and the descriptor above it: with scope: global both have an own share, or neither")
	}
	for _, l := range above.Limits {
		l.Name = cmp.Or(l.Name, l.String())
		l.Units -= int64(math.Ceil(float64(l.Units) * percent / 100))
		if l.Units < rule.Cost {
			return b.errorf(n, "reserve_below %s leaves %d units of %s, into which a cost of %d can never fit", text, l.Units, l.Name, rule.Cost)
		}
		rule.Limits = append(rule.Limits, l)
	}
	return nil
}

// usable describes the part of the limits above that a rule with a reserve may use.
func (r *Rule) usable() string {
	var texts []string
	for _, l := range r.Limits {
		texts = append(texts, strconv.FormatInt(l.Units, 10)+" of "+l.Name)
	}
	return "reserve_below " + strconv.FormatFloat(r.Reserve, 'f', -1, 64) + "%: " + strings.Join(texts, " and ")
}
