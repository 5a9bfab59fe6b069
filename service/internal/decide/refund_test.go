package decide

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A refund that spans many charges gives back all that is asked, as far as it is charged.
func TestARefundOfManyChargesGivesAllBack(t *testing.T) {
	d, c := decider(t, "domain: d\ndescriptors:\n- {key: a, limits: [2000000/1d]}\n")
	runs := 0
	remaining := func(name string) (n int64) {
		if _, err := fmt.Sscan(strings.TrimPrefix(ask(t, d, part(name, 0)), "ok:"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// refund charges a subject, gives units back, and returns how many are.
	refund := func(asked int64, charges ...int64) (given int64) {
		runs++
		name := fmt.Sprint("a=", runs)
		for _, units := range charges {
			ask(t, d, part(name, units))
			c.move(10 * time.Minute) // otherwise they are one entry of the log
		}
		before := remaining(name)
		back := part(name, asked)
		back.Refund = true
		ask(t, d, back)
		return remaining(name) - before
	}
	size := func(most float64) int64 { return int64(math.Exp(rand.Float64() * math.Log(most))) }
	for range 500 {
		asked, charges, used := size(1e6), make([]int64, 1+rand.IntN(30)), int64(0)
		for i := range charges {
			charges[i] = size(3e4)
			used += charges[i]
		}
		if given := refund(asked, charges...); given != min(asked, used) {
			t.Errorf("of %d asked and %d charged %d are given back: %v", asked, used, given, charges)
		}
	}
	ones := make([]int64, 70)
	for i := range ones {
		ones[i] = 1
	}
	for asked, want := range map[int64]int64{1: 1, 69: 69, 1000: 70} {
		if given := refund(asked, ones...); given != want {
			t.Errorf("of %d asked over 70 charges of one unit %d are given back, want %d", asked, given, want)
		}
	}
	if given := refund(1_000_000, append([]int64{1, 1, 1, 1}, 1_000_000)...); given != 1_000_000 {
		t.Errorf("%d are given back", given)
	}
}

func TestManyRefundsGiveAllBack(t *testing.T) {
	d, c := decider(t, "domain: d\ndescriptors:\n- {key: a, limits: [1000/1d]}\n")
	var backs []Part
	for i := range MaxRefunds {
		name := fmt.Sprint("a=", i)
		for range 10 {
			ask(t, d, part(name, 1))
			c.move(10 * time.Minute) // otherwise they are one entry of the log
		}
		back := part(name, 10)
		back.Refund = true
		backs = append(backs, back)
	}
	if got := ask(t, d, backs...); got != strings.TrimSuffix(strings.Repeat("ok:1000 | ", MaxRefunds), " | ") {
		t.Errorf("%d refunds: %s", MaxRefunds, got)
	}
}
