package sash_test

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

func TestAResultDoesNotChangeWithWhatIsDerivedFromIt(t *testing.T) {
	for _, limits := range [][]sash.Limit{
		{sash.PerMinute(10)},
		{sash.PerMinute(10), sash.PerHour(20), sash.PerDay(30)},
	} {
		l, err := sash.New(memstore.New(nil), nil, limits...)
		if err != nil {
			t.Fatal(err)
		}
		res, err := l.AllowN(t.Context(), "k", 4)
		if err != nil {
			t.Fatal(err)
		}
		policy, err := sash.NewPolicy(nil, limits...)
		if err != nil {
			t.Fatal(err)
		}
		part := res.Part(sash.Request{Key: "k", Cost: 1, Policy: policy}, 3)
		later := res.After(time.Minute - time.Second)
		if res.Remaining != 6 || res.Limits()[0].Remaining != 6 || res.Limits()[0].ResetAfter != time.Minute {
			t.Errorf("the original is now %+v", res.Limits())
		}
		if part.Remaining != 9 || part.Limits()[0].Remaining != 9 {
			t.Errorf("with 3 units to come: %+v", part.Limits())
		}
		if later.Limits()[0].ResetAfter != time.Second || later.Limits()[0].ReleaseAfter != time.Second || later.Remaining != 6 {
			t.Errorf("59 seconds later: %+v", later.Limits())
		}
		if gone := res.After(48 * time.Hour); gone.ResetAfter != 0 || gone.Limits()[0].ResetAfter != 0 {
			t.Errorf("two days later: %+v", gone.Limits())
		}
	}
}

func TestEqualPolicies(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	policy := func(opts *sash.Options, limits ...sash.Limit) *sash.Policy {
		p, err := sash.NewPolicy(opts, limits...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	minute := policy(nil, sash.PerMinute(5))
	for name, other := range map[string]*sash.Policy{
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
