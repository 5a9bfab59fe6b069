package decide

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

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
			answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: parts})
			if err != nil {
				t.Fatal(err)
			}
			return answers
		}
		check := func(name string, a Answer, refused, blocked bool) {
			t.Helper()
			if a.Refused != refused || a.Blocked != blocked || blocked && a.RefusedBy.RetryAfter < 29*time.Hour {
				t.Errorf("%s: refused %v, blocked %v, retry after %v", name, a.Refused, a.Blocked, a.RefusedBy.RetryAfter)
			}
		}
		a := []config.Entry{{Key: "a", Value: "1"}}
		check("admitted", ask(part("a=1", 1))[0], false, false)
		check("refused", ask(part("a=1", 1))[0], true, false)
		// Parts with another block, and without one, are other steps of the same decision.
		both := ask(part("a=1", 1), part("b", 1), part("c", 1))
		check("the second refusal, of several parts", both[0], true, true)
		check("a part beside a blocked one", both[1], false, false)
		check("a part with another block", both[2], false, false)
		both = ask(part("b", 1), part("a=1", 1), part("c", 1))
		check("a blocked part", both[1], true, true)
		if left := both[0].Limits[0].Remaining; left != 5 {
			t.Errorf("beside a blocked part %d units are left, want all 5", left)
		}
		check("another subject", ask(part("a=2", 1))[0], false, false)

		answers, err := d.Peek(t.Context(), Request{Domain: "d", Parts: []Part{part("a=1", 1)}})
		if err != nil {
			t.Fatal(err)
		}
		check("a peek", answers[0], true, true)
		answer, reserved, err := d.Reserve(t.Context(), Request{Domain: "d", Parts: []Part{part("a=1", 1)}})
		if err != nil || reserved != nil {
			t.Fatal(reserved, err)
		}
		check("a reservation", answer, true, true)
		state, err := d.State(t.Context(), "d", a)
		if err != nil {
			t.Fatal(err)
		}
		check("the state", state.Answer, true, true)
		_, err = d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part("a=1", 1)}, Within: time.Minute})
		if !errors.Is(err, ErrNoQueue) {
			t.Errorf("waiting under a block: %v", err)
		}

		// An override has the block of its rule, and does not end it; a request limit has none.
		d.Except([]Exception{{Domain: "d", Entries: a, Limits: []sash.Limit{sash.PerDay(99)}, Until: time.Now().Add(time.Hour)}})
		check("an override", ask(part("a=1", 1))[0], true, true)
		d.Except(nil)
		limited := part("a=1", 1)
		limited.RequestLimit = &sash.Limit{Units: 9, Window: 6 * time.Hour}
		check("a request limit", ask(limited)[0], false, false)
		if err := d.Reset(t.Context(), "d", a); err != nil {
			t.Fatal(err)
		}
		check("after a reset", ask(part("a=1", 1))[0], false, false)
		check("counting begins anew", ask(part("a=1", 1))[0], true, false)

		// shadow_mode tries a block out, and a candidate has one of its own.
		ask(part("soft", 1), part("b", 1))
		ask(part("soft", 1), part("b", 1))
		both = ask(part("soft", 1), part("b", 1))
		check("shadow_mode", both[0], true, true)
		if !both[0].Allowed() || both[1].Limits[0].Remaining != 2 {
			t.Errorf("beside shadow_mode %d units are left, want 2", both[1].Limits[0].Remaining)
		}
		ask(part("tried", 1))
		ask(part("tried", 1))
		tried := ask(part("tried", 1))[0]
		check("beside a candidate", tried, false, false)
		check("a candidate", *tried.Candidate, true, true)

		check("the second refusal since the reset", ask(part("a=1", 1))[0], true, true)
		time.Sleep(30*time.Hour + time.Microsecond)
		check("after the block", ask(part("a=1", 1))[0], false, false)
	})
}
