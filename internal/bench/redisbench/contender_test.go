package redisbench

import (
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/server"
)

// Figures compare only if every contender does the same work: a limit of 50 an hour admits 50.
func TestEveryContenderEnforcesTheLimit(t *testing.T) {
	s, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	b := bench{s}
	l := contenders()
	for _, c := range append([]contender{l.hand, l.compact}, l.others...) {
		t.Run(c.name, func(t *testing.T) {
			if err := b.Flush(); err != nil {
				t.Fatal(err)
			}
			one := job{"k", 1, []sash.Limit{sash.Every(50, time.Hour)}}
			got, err := b.decide(c, []job{one}, 80)
			if err != nil || got.allowed != 50 || got.left != 0 {
				t.Errorf("admitted %d of 80, left %d, %v; the limit is 50", got.allowed, got.left, err)
			}
			if got.micros <= 0 {
				t.Error("no server time was measured")
			}
			many := job{"many", 20, one.limits}
			if got, err := b.decide(c, []job{many}, 5); err != nil || got.allowed != 2 || got.left != 10 {
				t.Errorf("cost 20: admitted %d of 5, left %d, %v", got.allowed, got.left, err)
			}
			two := job{"two", 1, []sash.Limit{sash.Every(50, time.Hour), sash.Every(30, 2*time.Hour)}}
			if got, err := b.decide(c, []job{two}, 80); err != nil || got.allowed != 30 {
				t.Errorf("two limits: admitted %d of 80, %v; the smaller is 30", got.allowed, err)
			}
		})
	}
}

// The leanest scripts answer as Sash does, so that their figures compare: they admit as much, and say how much is left.
func TestTheLeanestScriptsGiveTheSameAnswers(t *testing.T) {
	s, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	b := bench{s}
	for _, p := range contenders().pairs() {
		t.Run(p.ours.name, func(t *testing.T) {
			if err := b.Flush(); err != nil {
				t.Fatal(err)
			}
			for _, cost := range []int64{1, 7} {
				one := job{fmt.Sprint("cost", cost), cost, []sash.Limit{sash.Every(50, 24*time.Hour)}}
				for i := range int64(60) {
					ours, err := b.decide(p.ours, []job{one}, 1)
					if err != nil {
						t.Fatal(err)
					}
					theirs, err := b.decide(p.leanest, []job{one}, 1)
					if err != nil {
						t.Fatal(err)
					}
					admits := (i+1)*cost <= 50
					if (ours.allowed == 1) != admits || (theirs.allowed == 1) != admits || admits && theirs.left != ours.left {
						t.Fatalf("call %d of cost %d: Sash admits %d and has %d left, the leanest script %d and %d",
							i, cost, ours.allowed, ours.left, theirs.allowed, theirs.left)
					}
				}
			}
		})
	}
}

func TestHoldingKeepsTheWindowFull(t *testing.T) {
	s, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	b := bench{s}
	l := contenders()
	for _, c := range []contender{l.hand, l.compact} {
		got, err := b.round(c, holding(100), 2000)
		if err != nil {
			t.Fatal(err)
		}
		// The number in the window depends on the machine; that calls leave as others come does not.
		if got.allowed != got.decisions || got.left >= sash.MaxEntries-1 {
			t.Errorf("%s: admitted %d of %d, %d units left", c.name, got.allowed, got.decisions, got.left)
		}
	}
}
