package config

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// reserved reads the key reserve_below: the rule of a descriptor whose calls count with the descriptor above it, on the
// same subject, and leave the last part of each of its limits to other calls.
//
//	key: quota
//	limits: ["10000/day@America/Los_Angeles"]
//	descriptors:
//	- {key: class, value: cron, reserve_below: 5%}
//
// Requests of quota alone may use all of it; those of quota and class=cron are admitted while no more than 95 % are
// used with them. So a cron job stops before the quota does, and people go on.
func (b *ruleBody) reserved(rule, above *Rule) error {
	n := b.reserveBelow
	for _, stray := range [...]bool{b.rateLimit != nil, b.limits != nil, b.algorithm != nil, b.resolution != nil, b.candidate != nil, b.countRefused} {
		if stray {
			return b.errorf(n, "reserve_below takes the limits of the descriptor above it: leave out limits, rate_limit, algorithm, resolution, count_refused and candidate")
		}
	}
	switch {
	case above == nil || !above.Limited():
		return b.errorf(n, "reserve_below belongs to a descriptor whose parent has limits: there is nothing to leave to others")
	case above.Reserve > 0:
		return b.errorf(n, "reserve_below below another reserve_below: put both below the descriptor that has the limits")
	}
	var text string
	if err := b.text("reserve_below", &text)(n); err != nil {
		return err
	}
	number, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !isPercent || percent <= 0 || percent >= 100 || math.IsNaN(percent) {
		return b.errorf(n, "reserve_below %q: it is the part of each limit that is left to others, such as 5%%", clip(text))
	}
	rule.Reserve, rule.Options, rule.Cost = percent, above.Options, above.Cost
	b.guard = b.guard || above.OnUnavailable.Guard // it is the same secret
	if b.onUnavailable == nil {
		rule.OnUnavailable = above.OnUnavailable
	}
	if err := b.options(rule); err != nil {
		return err
	}
	for _, l := range above.Limits {
		l.Name = cmp.Or(l.Name, l.String())
		l.Units -= int64(math.Ceil(float64(l.Units) * percent / 100))
		if l.Units < rule.Cost {
			return b.errorf(n, "reserve_below %s leaves %d units of %s, which a cost of %d never fits into", text, l.Units, l.Name, rule.Cost)
		}
		rule.Limits = append(rule.Limits, l)
	}
	return nil
}

// usable says what a rule with a reserve has of the limits above it.
func (r *Rule) usable() string {
	var texts []string
	for _, l := range r.Limits {
		texts = append(texts, strconv.FormatInt(l.Units, 10)+" of "+l.Name)
	}
	return "reserve_below " + strconv.FormatFloat(r.Reserve, 'f', -1, 64) + "%: " + strings.Join(texts, " and ")
}
