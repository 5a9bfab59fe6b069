package sash_test

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

func TestEqualPolicies(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	policy := func(opts *sash.Options, limits ...sash.Limit) *driver.Policy {
		p, err := sash.NewPolicy(opts, limits...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	minute := policy(nil, sash.PerMinute(5))
	for name, other := range map[string]*driver.Policy{
		"units":     policy(nil, sash.PerMinute(6)),
		"window":    policy(nil, sash.PerSecond(5)),
		"more":      policy(nil, sash.PerMinute(5), sash.PerHour(5)),
		"algorithm": policy(&sash.Options{Algorithm: sash.GCRA}, sash.PerMinute(5)),
		"refused":   policy(&sash.Options{CountRefused: true}, sash.PerMinute(5)),
		"calendar":  policy(nil, sash.PerCalendar(5, sash.CalendarDay, nil)),
	} {
		if minute.Equal(other) || other.Equal(minute) {
			t.Errorf("%s: equal", name)
		}
	}
	named := sash.PerMinute(5)
	named.Name = "burst"
	if !minute.Equal(policy(&sash.Options{Prefix: "x"}, named)) {
		t.Error("a name makes a difference")
	}
	if policy(nil, sash.PerCalendar(5, sash.CalendarDay, berlin)).Equal(policy(nil, sash.PerCalendar(5, sash.CalendarDay, nil))) {
		t.Error("a zone makes none")
	}
}
