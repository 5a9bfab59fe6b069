package decide

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

const counted = `
domain: d
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: never, rate_limit: {unit: minute, requests_per_unit: 0}}
`

// counts returns a decider whose rules are those of Envoy's service, and a function that asks it: "ok:4 | OVER:0".
func counts(t *testing.T, how *Counting) (*clock, func(parts ...Part) string) {
	t.Helper()
	c := &clock{time.Unix(1_800_000_000, 0)}
	if how.Over != nil {
		how.Over.now = func() time.Time { return c.now }
	}
	return c, countsOn(t, how, counted, memstore.New(&memstore.Options{Now: func() time.Time { return c.now }}))
}

// asEnvoy returns a decider whose rules count as Envoy's service does.
func asEnvoy(t *testing.T, text string, store driver.Store) *Decider {
	t.Helper()
	cfg, err := config.Parse(config.Defaults{Algorithm: sash.FixedWindow, CountRefused: true}, false, config.File{Name: "x.yaml", Text: []byte(text)})
	check(t, err)
	return newDecider(t, cfg, store)
}

// As Envoy's service counts what is over a limit, and what is near it: from the counter after the charge, less the part's units.
func TestWhatFitsOfARequestThatStops(t *testing.T) {
	d := asEnvoy(t, counted, memstore.New(nil))
	for want, parts := range map[string][]Part{
		"[5]":   {part("a=1", 7)},
		"[5 0]": {part("a=2", 7), part("a=2", 7)},
		"[2 5]": {part("b=3", 3), part("a=3", 6)},
		"[5 4]": {part("a=4", 6), part("a=4", 5)}, // the second is spared: its 5 units end at the 6 of the first
	} {
		var fits []int64
		for _, a := range must(d.Decide(t.Context(), Request{Domain: "d", Parts: parts, Lenient: true, Counting: &Counting{Stop: true}}))(t) {
			fits = append(fits, a.Fitted)
		}
		if fmt.Sprint(fits) != want {
			t.Errorf("%d of the units of %d parts fit, want %s", fits, len(parts), want)
		}
	}
}

func countsOn(t *testing.T, how *Counting, text string, store driver.Store) func(parts ...Part) string {
	t.Helper()
	d := asEnvoy(t, text, store)
	return func(parts ...Part) string {
		t.Helper()
		answers := must(d.Decide(t.Context(), Request{Domain: "d", Parts: parts, Lenient: true, Counting: how}))(t)
		var words []string
		for i := range answers {
			a := &answers[i]
			word := fmt.Sprint("ok:", remaining(*a))
			if a.Refused {
				word = "OVER"
			}
			if a.Source == sash.FromCache {
				word += "(cache)"
			}
			words = append(words, word)
		}
		return strings.Join(words, " | ")
	}
}

// What Envoy's service of January 2026 answers to the same requests.
func TestCountingChargesRefusalsToo(t *testing.T) {
	c, asks := counts(t, &Counting{})
	want(t, "more than fits", asks(part("a", 9)), "OVER")
	want(t, "a refused request has used the limit up", asks(part("a", 1)), "OVER")
	want(t, "a peek", asks(part("a", 0)), "OVER")
	want(t, "each is charged", asks(part("a=x", 2), part("b", 3)), "ok:3 | OVER")
	want(t, "again", asks(part("a=x", 1)), "ok:2")
	want(t, "no units at all", asks(part("never=x", 0), part("never", 1), part("never", 0)), "ok:0 | OVER | OVER")
	want(t, "one subject twice", asks(part("b=x", 2), part("b=x", 1)), "ok:0 | OVER")
	want(t, "a huge addend", asks(part("a=huge", 1<<62)), "OVER")
	c.move(time.Minute - time.Duration(c.now.Unix()%60)*time.Second)
	want(t, "the next window", asks(part("a", 5)), "ok:0")
}

func TestCountingStopsAtARefusal(t *testing.T) {
	_, asks := counts(t, &Counting{Stop: true})
	want(t, "only b is over", asks(part("a", 1), part("b", 3)), "ok:5 | OVER")
	want(t, "b was charged", asks(part("b", 1)), "OVER")
	want(t, "a was not", asks(part("a", 5)), "ok:0")
	want(t, "beside no units", asks(part("a=x", 1), part("never", 1)), "ok:5 | OVER")
	want(t, "all have room", asks(part("a=x", 1), part("b=x", 1)), "ok:4 | ok:1")
	want(t, "one subject twice, and the second refuses", asks(part("a=x", 1), part("a=x", 5)), "ok:4 | OVER")
	want(t, "to fill it", asks(part("a=y", 4)), "ok:1")
	want(t, "the second sees what the first was charged", asks(part("a=y", 2), part("a=y", 1)), "OVER | OVER")
}

// Under every algorithm, of a subject without charges, with some, and full.
func TestMoreThanALimitHasIsOverAndCounted(t *testing.T) {
	for _, algorithm := range sash.Algorithms() {
		for _, stop := range []bool{false, true} {
			text := strings.ReplaceAll(counted, "{key: a, ", "{key: a, algorithm: "+algorithm.String()+", ")
			asks := countsOn(t, &Counting{Stop: stop}, text, memstore.New(nil))
			for i, units := range []int64{9, 9, 1, 9} {
				want(t, fmt.Sprint(algorithm, " stops: ", stop, ", call ", i), asks(part("a", units)), "OVER")
			}
			want(t, "one has room", asks(part("a=x", 1)), "ok:4")
			want(t, "and then more than the limit has", asks(part("a=x", 9)), "OVER")
		}
	}
}

func TestCountingRemembersWhatIsOver(t *testing.T) {
	over := NewOverLimit(0)
	c, asks := counts(t, &Counting{Over: over})
	want(t, "over", asks(part("b", 3)), "OVER")
	want(t, "remembered", asks(part("b", 1), part("a", 1)), "OVER(cache) | ok:4")
	c.move(time.Minute)
	want(t, "the next window", asks(part("b", 1)), "ok:1")
	if s := over.Stats(); s.Lookups != 4 || s.Hits != 1 || s.Misses != 3 || s.Entries != 0 || s.Expired != 1 {
		t.Errorf("%+v", s)
	}

	_, asks = counts(t, &Counting{Stop: true, Over: NewOverLimit(0)})
	want(t, "over", asks(part("b", 3)), "OVER")
	want(t, "others are not charged", asks(part("b", 1), part("a", 2)), "OVER(cache) | ok:5")
	want(t, "nor if they have no room", asks(part("b", 1), part("a", 9), part("never", 1)), "OVER(cache) | ok:5 | ok:0")
	less := part("a=x", 0)
	less.RequestLimit = &sash.Limit{Units: 2, Window: time.Minute}
	want(t, "three", asks(part("a=x", 3)), "ok:2")
	want(t, "a peek under a limit of two", asks(less), "OVER")
	want(t, "is remembered, too", asks(part("a=x", 1)), "OVER(cache)")
}

// The bound is one of memory: a cache of 8 MiB takes 8 MiB.
func TestWhatIsRememberedTakesItsBound(t *testing.T) {
	const most = 8 << 20
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	over, before := NewOverLimit(most), heap()
	held := &limits{named: []sash.Limit{sash.Every(1, time.Hour)}}
	for i := range most / 100 {
		over.note(&Answer{Key: fmt.Sprintf("edge:remote_address:10.20.%06d", i), Refused: true, limits: held})
	}
	took := int64(heap() - before)
	runtime.KeepAlive(over)
	if took > most*5/4 {
		t.Errorf("%d bytes take %d", most, took)
	}
}

const blocking = `
domain: d
descriptors:
- {key: a, limits: [1/6h], block: {refusals: 2, window: 1h, for: 30h}}
- {key: b, limits: [5/6h]}
- {key: c, limits: [5/6h], block: 30h}
- {key: soft, limits: [1/6h], block: {refusals: 1, for: 30h}, shadow_mode: true}
- {key: tried, limits: [9/6h], block: {refusals: 1, for: 30h}, candidate: {limits: [1/6h]}}
`

func TestBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := live(t, blocking)
		ask := func(parts ...Part) []Answer {
			t.Helper()
			return must(d.Decide(t.Context(), Request{Domain: "d", Parts: parts}))(t)
		}
		is := func(name string, a Answer, refused, blocked bool) {
			t.Helper()
			if a.Refused != refused || a.Blocked != blocked || blocked && a.RefusedBy.RetryAfter < 29*time.Hour {
				t.Errorf("%s: refused %v, blocked %v, retry after %v", name, a.Refused, a.Blocked, a.RefusedBy.RetryAfter)
			}
		}
		a := []config.Entry{{Key: "a", Value: "1"}}
		is("admitted", ask(part("a=1", 1))[0], false, false)
		is("refused", ask(part("a=1", 1))[0], true, false)
		// Parts with another block, and without one, are other steps of the same decision.
		both := ask(part("a=1", 1), part("b", 1), part("c", 1))
		is("the second refusal, of several parts", both[0], true, true)
		is("a part beside a blocked one", both[1], false, false)
		is("a part with another block", both[2], false, false)
		both = ask(part("b", 1), part("a=1", 1), part("c", 1))
		is("a blocked part", both[1], true, true)
		if left := both[0].Limits[0].Remaining; left != 5 {
			t.Errorf("beside a blocked part %d units are left, want all 5", left)
		}
		is("another subject", ask(part("a=2", 1))[0], false, false)

		answers := must(d.Peek(t.Context(), Request{Domain: "d", Parts: []Part{part("a=1", 1)}}))(t)
		is("a peek", answers[0], true, true)
		answer, reserved, err := d.Reserve(t.Context(), Request{Domain: "d", Parts: []Part{part("a=1", 1)}})
		if err != nil || reserved != nil {
			t.Fatal(reserved, err)
		}
		is("a reservation", answer, true, true)
		state := must(d.State(t.Context(), "d", a))(t)
		is("the state", state.Answer, true, true)
		_, err = d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part("a=1", 1)}, Within: time.Minute})
		if !errors.Is(err, ErrNoQueue) {
			t.Errorf("waiting under a block: %v", err)
		}

		// An override has the block of its rule, and does not end it; a request limit has none.
		d.Except([]Exception{{Domain: "d", Entries: a, Limits: []sash.Limit{sash.PerDay(99)}, Until: time.Now().Add(time.Hour)}})
		is("an override", ask(part("a=1", 1))[0], true, true)
		d.Except(nil)
		limited := part("a=1", 1)
		limited.RequestLimit = &sash.Limit{Units: 9, Window: 6 * time.Hour}
		is("a request limit", ask(limited)[0], false, false)
		check(t, d.Reset(t.Context(), "d", a))
		is("after a reset", ask(part("a=1", 1))[0], false, false)
		is("counting begins anew", ask(part("a=1", 1))[0], true, false)

		// shadow_mode tries a block out, and a candidate has one of its own.
		ask(part("soft", 1), part("b", 1))
		ask(part("soft", 1), part("b", 1))
		both = ask(part("soft", 1), part("b", 1))
		is("shadow_mode", both[0], true, true)
		if !both[0].Allowed() || both[1].Limits[0].Remaining != 2 {
			t.Errorf("beside shadow_mode %d units are left, want 2", both[1].Limits[0].Remaining)
		}
		ask(part("tried", 1))
		ask(part("tried", 1))
		tried := ask(part("tried", 1))[0]
		is("beside a candidate", tried, false, false)
		is("a candidate", *tried.Candidate, true, true)

		is("the second refusal since the reset", ask(part("a=1", 1))[0], true, true)
		time.Sleep(30*time.Hour + time.Microsecond)
		is("after the block", ask(part("a=1", 1))[0], false, false)
	})
}
