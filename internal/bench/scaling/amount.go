package scaling

import (
	"fmt"
	"math"
	"strconv"
)

// exactly is an amount without uncertainty.
func exactly(v float64) amount { return amount{v, v, v} }

// times and plus carry bounds: the lowest with the lowest, the highest with the highest. Amounts are positive, but for
// slopes that are added.
func (a amount) times(b amount) amount {
	return amount{a.value * b.value, a.low * b.low, a.high * b.high}.printed()
}

func (a amount) plus(b amount) amount {
	return amount{a.value + b.value, a.low + b.low, a.high + b.high}.printed()
}

// after returns the factor of a slope in per cent after doublings.
func (a amount) after(doublings float64) amount {
	s := a.rising()
	f := func(percent float64) float64 { return 1 + doublings*percent/100 }
	return amount{f(s.value), f(s.low), f(s.high)}.printed()
}

// rising counts what falls as zero: that there is more of something else than work makes no decision cheaper.
func (a amount) rising() amount { return amount{max(0, a.value), max(0, a.low), max(0, a.high)} }

// up rounds up to whole numbers.
func (a amount) up() amount { return amount{math.Ceil(a.value), math.Ceil(a.low), math.Ceil(a.high)} }

// printed is the amount as String prints it: a reader computes with that.
func (a amount) printed() amount { return amount{round(a.value), round(a.low), round(a.high)} }

// round keeps three significant digits, and all digits of a whole number.
func round(v float64) float64 {
	if math.Abs(v) >= 100 || v == math.Trunc(v) {
		return math.Round(v)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64) // it has just been printed
	return rounded
}

func number(v float64) string { return strconv.FormatFloat(round(v), 'f', -1, 64) }

// String returns "10.6 (9.2 to 12.3)", or "10.6" if that is certain.
func (a amount) String() string {
	if a.low == a.high {
		return number(a.value)
	}
	return fmt.Sprintf("%s (%s to %s)", number(a.value), number(a.low), number(a.high))
}

// percent returns a slope as its table has it: "+3.1 % ± 2".
func (a amount) percent() string {
	return fmt.Sprintf("%+.1f %% ± %s", a.value, number(a.high-a.value))
}

// thousands writes a whole number as "1,000,000".
func thousands(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// doublings is how often a has to double to be b, to two digits, and not below zero.
func doublings(a, b float64) float64 { return max(0, math.Round(100*math.Log2(b/a))/100) }
