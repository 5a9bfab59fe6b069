package cli

import (
	"fmt"
	"regexp"
	"strconv"

	"example.com/sash/replay"
)

// A failIf is a condition on a candidate under which the command fails.
type failIf struct {
	text    string
	of      string
	least   bool // >=, not >
	value   float64
	percent bool
}

var failIfForm = regexp.MustCompile(`^\s*(clients-limited|refused|broken)\s*(>=?)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*$`)

func parseFailIf(text string) (failIf, error) {
	m := failIfForm.FindStringSubmatch(text)
	if m == nil {
		return failIf{}, fmt.Errorf("--fail-if %q: write clients-limited, refused or broken, then > or >=, and a number or a share, such as 'clients-limited>0.1%%'", text)
	}
	value, err := strconv.ParseFloat(m[3], 64)
	return failIf{text: text, of: m[1], least: m[2] == ">=", value: value, percent: m[4] != ""}, err
}

// holds reports whether a candidate meets the condition.
func (f failIf) holds(log logReport, o *replay.Outcome) bool {
	part, whole := o.Refused, o.Requests
	switch f.of {
	case "clients-limited":
		part, whole = o.ClientsLimited, int64(log.Clients)
	case "broken":
		part, whole = log.Broken, log.Broken+log.Requests+log.Filtered+log.Unlimited
	}
	got, bound := float64(part), f.value
	if f.percent {
		got, bound = 100*got, bound*float64(whole) // compared without a division
	}
	return got > bound || f.least && got == bound
}
