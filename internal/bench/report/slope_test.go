package report_test

import (
	"math"
	"strings"
	"testing"

	"example.com/sash/internal/bench/report"
)

var doubled = []int{1, 2, 4, 8}

func near(got, want float64) bool { return math.Abs(got-want) < 1e-9 }

// 10, 11, 12 and 13 rise by 1 a doubling, which is 1/11.5 of their mean.
func TestDoublingOfALine(t *testing.T) {
	s := report.Doubling(doubled, []report.Figure{{10, 10}, {11, 11}, {12, 12}, {13, 13}})
	if !near(s.Each, 1) || !near(s.Percent, 100/11.5) || !near(s.Within, 0) || s.Flat() {
		t.Errorf("%+v, want 1 a doubling, which is %v %%, without uncertainty", s, 100/11.5)
	}
}

func TestOneMoreOfALine(t *testing.T) {
	s := report.OneMore(doubled, []report.Figure{{5}, {8}, {14}, {26}})
	if !near(s.Each, 3) || !near(s.Within, 0) {
		t.Errorf("%+v, want 3 for one more, without uncertainty", s)
	}
}

// A machine that is half as fast for a whole round changes neither the slope nor its uncertainty.
func TestASlowRoundMovesNoSlope(t *testing.T) {
	steady := report.Doubling(doubled, []report.Figure{{10, 10, 11}, {10, 11, 11}, {12, 11, 12}, {12, 12, 13}})
	slow := report.Doubling(doubled, []report.Figure{{10, 20, 11}, {10, 22, 11}, {12, 22, 12}, {12, 24, 13}})
	if !near(steady.Percent, slow.Percent) || !near(steady.Within, slow.Within) || steady.Within == 0 {
		t.Errorf("%+v with a slow round, %+v without", slow, steady)
	}
}

// By hand: relative to their mean 10 the rounds are 0, 0, 0, 0 and -5, +5, +5, -5 per cent. The slope is 0, 100 is left
// over 8 points less 2 means less 1 slope, and the squares of the sizes' logarithms from their mean sum to 10.
func TestUncertaintyIsTwoStandardErrors(t *testing.T) {
	s := report.Doubling(doubled, []report.Figure{{10, 9.5}, {10, 10.5}, {10, 10.5}, {10, 9.5}})
	if want := 2 * math.Sqrt(100.0/5/10); !near(s.Percent, 0) || !near(s.Within, want) || !s.Flat() {
		t.Errorf("%+v, want 0 ± %v and flat", s, want)
	}
}

func TestSlopesInShort(t *testing.T) {
	for want, figures := range map[string][]report.Figure{
		"rises": {{10, 10}, {11, 11}, {12, 12}, {13, 13}},
		"falls": {{13, 13}, {12, 12}, {11, 11}, {10, 10}},
		// Below 2 %, but it could be ten.
		"unclear": {{10, 13}, {13, 10}, {10, 14}, {12, 12}},
		// Above 2 %, but it could be none.
		"unclear ": {{100, 100}, {110, 100}, {100, 112}, {110, 108}},
		// Below 2 %, and certain.
		"rises ": {{100, 100}, {101, 101}, {102, 102}, {103, 103}},
		"flat":   {{100, 101}, {101, 100}, {100, 101}, {100, 101}},
	} {
		slopes := report.NewSlopes("keys", doubled, "key")
		slopes.Row("time", figures)
		if got := slopes.String(); !strings.Contains(got, " "+strings.TrimSpace(want)+" |") {
			t.Errorf("want %q:\n%s", want, got)
		}
	}
}
