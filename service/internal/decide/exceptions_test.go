package decide

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

const excepted = `
domain: d
descriptors:
- {key: user, limits: [3/1h], refund_within: 1m}
- {key: fixed, limits: [3/1h], algorithm: fixed-window}
- {key: tried, limits: [1/1h], shadow_mode: true}
- {key: free, rate_limit: {unlimited: true}}
- {key: never, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: heavy, limits: [9/1h], cost: 5}
- {key: file, value: "pub/*", limits: [3/1h], share_threshold: true}
- {key: small, rate_limit: {unit: minute, requests_per_unit: 1, name: small}}
- {key: large, rate_limit: {unit: minute, requests_per_unit: 100, replaces: [{name: small}]}}
`

// live is a decider on the process's clock, which synctest moves.
func live(t *testing.T, text string) *Decider {
	t.Helper()
	return deciderOn(t, text, memstore.New(nil))
}

func limitsFrom(t *testing.T, texts ...string) (out []sash.Limit) {
	t.Helper()
	for _, text := range texts {
		l, err := sash.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

func exception(entries string, life time.Duration, of ...sash.Limit) Exception {
	return Exception{Domain: "d", Entries: part(entries, 1).Entries, Limits: of, Until: time.Now().Add(life)}
}

func decideOne(t *testing.T, d *Decider, entries string) Answer {
	t.Helper()
	v, err := one(t.Context(), d, One("d", part(entries, 1).Entries, nil))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A banned subject is refused by both ways of asking, is not charged, and is free again when the ban ends.
func TestABannedSubjectIsRefusedUntilTheBanEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := live(t, excepted)
		want(t, "before", ask(t, d, part("user=eve", 1)), "ok:2")
		d.Except([]Exception{exception("user=eve", time.Minute), exception("stranger=eve", time.Minute)})
		v := decideOne(t, d, "user=eve")
		if v.Allowed() || v.RefusedBy.Limit.Name != "ban" || v.RefusedBy.RetryAfter != time.Minute {
			t.Errorf("it is answered %+v", v)
		}
		if v := decideOne(t, d, "stranger=eve"); v.Allowed() {
			t.Error("entries that no rule matches are let through although they are banned")
		}
		want(t, "banned", ask(t, d, part("user=eve", 1), part("user=ann", 1)), "OVER:0 | ok:3")
		want(t, "a limit of the request's own does not lift it", ask(t, d, Part{
			Entries: part("user=eve", 1).Entries, Cost: 1, RequestLimit: &sash.Limit{Units: 9, Window: time.Hour},
		}), "OVER:0")
		refund := part("user=eve", 1)
		refund.Refund = true
		want(t, "a refund is given back", ask(t, d, refund), "ok:3")
		<-time.After(time.Minute) // in a bubble: the clock moves without waiting
		want(t, "over", ask(t, d, part("user=eve", 1)), "ok:2")
		if v := decideOne(t, d, "user=eve"); !v.Allowed() || remaining(v) != 1 {
			t.Errorf("after the ban: %+v", v)
		}
	})
}

// A ban binds where a limit does not: under shadow_mode, unlimited, and where another rule replaces this one.
func TestABanAlwaysBinds(t *testing.T) {
	d := live(t, excepted)
	var all []Exception
	for _, entries := range []string{"tried=a", "free=a", "never=a", "small"} {
		all = append(all, exception(entries, time.Hour))
	}
	d.Except(all)
	for _, entries := range []string{"tried=a", "free=a", "never=a"} {
		if v := decideOne(t, d, entries); v.Allowed() {
			t.Errorf("%s is let through: %+v", entries, v)
		}
		answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part(entries, 1)}, Lenient: true})
		if err != nil || answers[0].BannedBy == nil || answers[0].Soft() {
			t.Errorf("%s: %+v, %v", entries, answers, err)
		}
	}
	want(t, "replaced", ask(t, d, part("small", 1), part("large", 1)), "OVER:0 | ok:100")
}

func TestExceptionsAreChecked(t *testing.T) {
	d := live(t, excepted)
	for name, c := range map[string]struct {
		e    Exception
		fail error
	}{
		"a ban":                {exception("user=a", time.Hour), nil},
		"a ban without a rule": {exception("file=priv/a", time.Hour), nil},
		"a ban of no key":      {exception("stranger=a", time.Hour), config.ErrNoDescriptor},
		"another domain":       {Exception{Domain: "e", Entries: part("user=a", 1).Entries}, config.ErrUnknownDomain},
		"an override":          {exception("user=a", time.Hour, limitsFrom(t, "1/1m")...), nil},
		"without a rule":       {exception("stranger=a", time.Hour, limitsFrom(t, "1/1m")...), ErrNotLimited},
		"below the cost":       {exception("heavy=a", time.Hour, limitsFrom(t, "4/1m")...), sash.ErrInvalidLimit},
		"many units":           {exception("user=a", time.Hour, limitsFrom(t, "1000000/1m")...), nil},
		"two of one window":    {exception("user=a", time.Hour, limitsFrom(t, "1/1m", "2/1m")...), sash.ErrInvalidLimit},
	} {
		if err := d.CheckException(c.e); !errors.Is(err, c.fail) || (err == nil) != (c.fail == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.fail)
		}
	}
}

// Exceptions outlive a new configuration. An override that does not fit any more leaves the subject to its rule.
func TestExceptionsAndANewConfiguration(t *testing.T) {
	d := live(t, excepted)
	d.Except([]Exception{exception("user=eve", time.Hour), exception("user=ann", time.Hour, limitsFrom(t, "5/1m")...)})
	use(t, d, "domain: d\ndescriptors:\n- {key: user, limits: [2/1h], cost: 1}\n")
	want(t, "as before", ask(t, d, part("user=ann", 1)), "ok:4")
	use(t, d, "domain: d\ndescriptors:\n- {key: user, limits: [9/1h], cost: 6}\n")
	want(t, "the override no longer fits", ask(t, d, part("user=ann", 1)), "ok:7")
	want(t, "the ban stays", ask(t, d, part("user=eve", 1)), "OVER:0")
}

func TestResetAndLook(t *testing.T) {
	d := live(t, excepted)
	ann := part("user=ann", 1).Entries
	ask(t, d, part("user=ann", 3), part("user=bob", 3))
	state, err := d.State(t.Context(), "d", ann)
	if err != nil || remaining(state.Answer) != 0 || state.Found.Rule == nil || state.Ban != nil {
		t.Errorf("%+v, %v", state, err)
	}
	if err := d.Reset(t.Context(), "d", ann); err != nil {
		t.Fatal(err)
	}
	d.Except([]Exception{exception("user=ann", time.Hour)})
	if state, err = d.State(t.Context(), "d", ann); err != nil || remaining(state.Answer) != 3 || state.Ban == nil {
		t.Errorf("after the reset: %+v, %v", state, err)
	}
	want(t, "another subject", ask(t, d, part("user=bob", 1)), "OVER:0")
	for _, entries := range []string{"stranger=a", "never=a"} {
		if err := d.Reset(t.Context(), "d", part(entries, 1).Entries); !errors.Is(err, ErrNotLimited) {
			t.Errorf("%s: %v", entries, err)
		}
	}
	if err := d.Reset(t.Context(), "e", ann); !errors.Is(err, config.ErrUnknownDomain) {
		t.Errorf("another domain: %v", err)
	}
	if state, err := d.State(t.Context(), "d", part("free=a", 1).Entries); err != nil || len(state.Limits) > 0 || state.Found.Rule == nil {
		t.Errorf("unlimited: %+v, %v", state, err)
	}
}
