package stats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

// observed returns an observation of one part.
func observed(subject string, units int64, refused bool) *decide.Observation {
	a := decide.Answer{
		Key: subject, Metric: "d.user", Cost: units, Refused: refused,
		Limits: []sash.LimitResult{{Limit: sash.PerHour(sash.MaxUnits)}},
	}
	if refused {
		a.RefusedBy.Limit.Name = "5/1m"
	}
	return &decide.Observation{
		Domain: "d", Parts: []decide.Part{{Entries: []config.Entry{{Key: "user", Value: subject}}}},
		Answers: []decide.Answer{a}, Allowed: !refused, Began: time.Now(),
	}
}

// hot returns a registry that counts subjects.
func hot() *Registry { return New(&Options{Subjects: true}) }

// spell writes the first n subjects of an order.
func spell(c *Registry, order Order, n int) string {
	lines, _ := c.Hottest(order, n)
	var words []string
	for _, l := range lines {
		words = append(words, fmt.Sprintf("%s %d %s", l.Subject, l.Count, l.Last))
	}
	return strings.Join(words, ", ")
}

func TestSubjectsByUnitsAndByRefusals(t *testing.T) {
	c, ctx := hot(), context.Background()
	c.Observe(ctx, observed("ann", 3, false))
	c.Observe(ctx, observed("ann", 4, false))
	c.Observe(ctx, observed("eve", 1, false))
	for range 5 {
		c.Observe(ctx, observed("eve", 1, true))
	}
	c.Observe(ctx, observed("looker", 0, false))
	c.Observe(ctx, observed("giver", -3, false))
	if got, want := spell(c, ByUnits, 9), "ann 7 allowed, eve 6 refused"; got != want {
		t.Errorf("by units: %s, want %s", got, want)
	}
	if got, want := spell(c, ByRefused, 9), "eve 5 refused"; got != want {
		t.Errorf("by refused: %s, want %s", got, want)
	}
	if got := spell(c, ByUnits, 1); got != "ann 7 allowed" {
		t.Errorf("the first: %s", got)
	}
	lines, since := c.Hottest(ByRefused, 1)
	if l := lines[0]; l.RefusedBy == nil || *l.RefusedBy != "5/1m" || l.Entries[0].Value != "eve" || time.Since(since) < 0 {
		t.Errorf("%+v since %v", l, since)
	}
}

func TestCountsDoNotOverflow(t *testing.T) {
	c, ctx := hot(), context.Background()
	for range 3 {
		c.Observe(ctx, observed("eve", sash.MaxUnits, true))
	}
	if got, want := spell(c, ByUnits, 9), fmt.Sprintf("eve %d refused", int64(3*sash.MaxUnits)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var s sketch
	for i := range 2 * counters { // the second half takes the places of the first
		if line, _ := s.add(fmt.Sprint(i), math.MaxInt64-1); line.Count < math.MaxInt64-1 {
			t.Errorf("%+v", line)
		}
	}
}

func TestTheLastOutcomeOfASubject(t *testing.T) {
	for want, change := range map[string]func(*decide.Observation){
		"allowed": func(*decide.Observation) {},
		"refused": func(o *decide.Observation) { o.Allowed = false }, // by another part
		"error":   func(o *decide.Observation) { o.Allowed, o.Err = false, errors.New("no answer") },
		"banned":  func(o *decide.Observation) { o.Answers[0].Refused, o.Answers[0].BannedBy = true, &decide.Exception{} },
		"shadow": func(o *decide.Observation) {
			o.Answers[0].Refused, o.Answers[0].Rule = true, &config.Rule{Shadow: true}
		},
	} {
		c, o := hot(), observed("ann", 1, false)
		change(o)
		c.Observe(t.Context(), o)
		if lines, _ := c.Hottest(ByUnits, 1); lines[0].Last != want || len(lines[0].Entries) != 1 {
			t.Errorf("%+v, want %s", lines[0], want)
		}
	}
	c, o := hot(), observed("ann", 1, false)
	o.Parts[0].Entries[0].Value = strings.Repeat("x", maxText)
	c.Observe(t.Context(), o)
	if lines, _ := c.Hottest(ByUnits, 1); lines[0].Entries != nil {
		t.Error("long entries are kept")
	}
}

// Hottest is about the last one to two epochs.
func TestSubjectsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := hot(), time.Now()
		c.Observe(t.Context(), observed("ann", 1, false))
		<-time.After(epoch)
		c.Observe(t.Context(), observed("ann", 1, false))
		if got := spell(c, ByUnits, 9); got != "ann 2 allowed" {
			t.Errorf("after one: %s", got)
		}
		if _, since := c.Hottest(ByUnits, 9); !since.Equal(start) {
			t.Errorf("since %v, want %v", since, start)
		}
		<-time.After(epoch)
		if got := spell(c, ByUnits, 9); got != "ann 1 allowed" {
			t.Errorf("after two: %s", got)
		}
		<-time.After(epoch)
		c.Observe(t.Context(), observed("ann", 1, false))
		<-time.After(2 * epoch)
		if got := spell(c, ByUnits, 9); got != "" {
			t.Errorf("long after: %s", got)
		}
	})
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
	r.subjects = hot().subjects
	ask := func(parts ...decide.Part) error {
		_, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: parts})
		return err
	}
	for range 3 {
		servertest.Check(t, ask(part("user", "ann")))
	}
	want := spell(r, ByUnits, 9999)
	for i := range 20 * counters {
		stranger := fmt.Sprint("stranger ", i)
		above, wrong := part("user", stranger), part("user", stranger)
		above.Cost, wrong.Cost = 1<<40, -1
		_, _, reserved := d.Reserve(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{part("counts", stranger)}})
		_, nowhere := d.Decide(t.Context(), decide.Request{Domain: "other", Parts: []decide.Part{part("user", stranger)}})
		_, named := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{part("user", stranger)}, ID: strings.Repeat("x", decide.MaxIDLength+1)})
		for _, err := range []error{reserved, nowhere, named, ask(above), ask(wrong), ask(part("user", stranger), above)} {
			if err == nil {
				t.Fatal("a request was not rejected")
			}
		}
		answers, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: []decide.Part{above}, Lenient: true})
		if err != nil || !answers[0].Refused {
			t.Fatal(err)
		}
	}
	if got := spell(r, ByUnits, 9999); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
