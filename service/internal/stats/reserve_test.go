package stats

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Every rule of the configuration in use counts under its own name, whatever requests brought before it was first used,
// and however often the configuration was replaced.
func TestConfiguredRulesKeepTheirSeries(t *testing.T) {
	d, r := counting(t, "domain: d\ndescriptors: [{key: first, limits: [5/1h]}]\n", memstore.New(nil))
	one := sash.PerHour(1)
	for i := range 2 * maxNames {
		entries := []config.Entry{{Key: fmt.Sprint("own", i)}, {Key: "x"}}
		_, _ = d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{{Entries: entries, Cost: 1, RequestLimit: &one}}, Lenient: true})
	}
	for round := range 150 {
		key, tried := fmt.Sprint("key", round), fmt.Sprint("tried", round)
		cfg := parse(t, fmt.Sprintf("domain: d\ndescriptors:\n- {key: %s, limits: [5/1h]}\n"+
			"- {key: %s, limits: [5/1h], candidate: {limits: [1/1h]}}\n", key, tried))
		if err := d.Use(cfg); err != nil {
			t.Fatal(err)
		}
		r.Use(cfg)
		for _, k := range []string{key, tried} {
			if _, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{part(k, "a")}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{key, tried, tried + ".candidate"} {
			if n := r.Rule("d." + name).Total.Load(); n != 1 {
				t.Fatalf("round %d: %d units are counted for %s", round, n, name)
			}
		}
		if n := r.rules.Get(ruleID{"d", key}).outcomes.counts().Allowed; n != 1 {
			t.Fatalf("round %d: %d decisions are counted", round, n)
		}
	}
	if names, rules := len(r.units.All()), len(r.rules.All()); names > maxNames+1+3 || rules > maxLeft+1+4 {
		t.Errorf("%d names and %d rules are held", names, rules)
	}
}

// What is answered 400, 404 or 422, or could never be admitted, does not enter the list of the hottest subjects by its
// units, and so pushes nobody out of it.
func TestRequestsThatAreNotDecidedLeaveTheHottestAlone(t *testing.T) {
	d, r := counting(t, `
domain: d
descriptors:
- {key: user, limits: [5/1h]}
- {key: counts, limits: [5/1h], count_refused: true}
`, memstore.New(nil))
	r.subjects = newSubjects()
	for range 3 {
		if _, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{part("user", "ann")}}); err != nil {
			t.Fatal(err)
		}
	}
	want, refused := spell(r, ByUnits, 9999), 0
	for i := range 40 * counters {
		stranger := fmt.Sprint("stranger ", i)
		above, wrong := part("user", stranger), part("user", stranger)
		above.Cost, wrong.Cost = 1<<40, -1
		reserve := decide.Request{Domain: "d", Parts: []decide.Part{part("counts", stranger)}}
		_, _, err := d.Reserve(t.Context(), reserve)
		for _, req := range []decide.Request{
			{Domain: "d", Parts: []decide.Part{above}}, {Domain: "d", Parts: []decide.Part{wrong}},
			{Domain: "d", Parts: []decide.Part{part("user", stranger), above}}, {Domain: "other", Parts: []decide.Part{part("user", stranger)}},
			{Domain: "d", Parts: []decide.Part{part("user", stranger)}, ID: strings.Repeat("x", decide.MaxIDLength+1)},
		} {
			if _, err := d.Decide(t.Context(), req); err != nil {
				refused++
			}
		}
		if err != nil {
			refused++
		}
		lenient := decide.Request{Domain: "d", Parts: []decide.Part{above}, Lenient: true}
		if answers, err := d.Decide(t.Context(), lenient); err != nil || !answers[0].Refused {
			t.Fatal(err)
		}
	}
	if refused != 6*40*counters {
		t.Errorf("%d requests were refused", refused)
	}
	if got := spell(r, ByUnits, 9999); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	_ = r.WriteText(io.Discard)
}
