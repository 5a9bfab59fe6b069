package logs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

func part(n int64, share float64) string { return fmt.Sprintf("%d (%.2f%%)", n, 100*share) }

// shellText returns an argument as a shell takes it.
func shellText(arg string) string {
	plain := func(c rune) bool {
		return strings.ContainsRune("_-./:=,@%+", c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	if arg != "" && strings.TrimFunc(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// secondsText returns a duration for people: two units at most, and seconds at least.
func secondsText(seconds float64) string {
	const day = 24 * 60 * 60
	length := time.Duration(seconds * 1e9)
	switch {
	case seconds >= 2*day:
		return strconv.FormatFloat(math.Round(10*seconds/day)/10, 'f', -1, 64) + " days"
	case seconds >= 60*60:
		return strings.TrimSuffix(length.Round(time.Minute).String(), "0s")
	case seconds > 0 && seconds < 1:
		return length.Round(time.Millisecond).String()
	}
	return length.Round(time.Second).String()
}
