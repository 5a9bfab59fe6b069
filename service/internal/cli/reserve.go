package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/sash/replay"
)

// A reserve is one --reserve.
type reserve struct {
	Class   string `json:"class"` // an expression
	Percent int    `json:"percent"`
}

// classes reads --reserve into the classes of the log's expressions.
func (r *replayFlags) classes() error {
	if len(r.reserves) == 0 {
		return nil
	}
	if r.policy.file != "" {
		return errors.New("--reserve is for --try, and not for --policy")
	}
	for _, text := range r.reserves {
		i := strings.LastIndexByte(text, ':')
		if i < 0 {
			i = len(text)
		}
		number, isShare := strings.CutSuffix(strings.TrimSpace(text[min(i+1, len(text)):]), "%")
		percent, err := strconv.Atoi(number)
		class := strings.TrimSpace(text[:i])
		if !isShare || err != nil || percent < 1 || percent > 99 || class == "" {
			return fmt.Errorf("--reserve %q: write an expression, a colon and a percentage from 1%% to 99%%, such as 'user == \"cron\": 5%%'", text)
		}
		r.expressions.Classes = append(r.expressions.Classes, class)
		r.shares = append(r.shares, 100-percent)
	}
	r.days = true
	return nil
}

// said is what --reserve has.
func (r *replayFlags) said() (all []reserve) {
	for i, class := range r.expressions.Classes {
		all = append(all, reserve{class, 100 - r.shares[i]})
	}
	return all
}

// reserved returns a candidate, and with --reserve the same with it.
func (r *replayFlags) reserved(c replay.Candidate) []replay.Candidate {
	if r.shares == nil {
		return []replay.Candidate{c}
	}
	with := c
	with.Shares = r.shares
	return []replay.Candidate{c, with}
}

// daysText is when each candidate first refused a class of calls on each day.
func (a *app) daysText(r replayReport) error {
	for _, o := range r.Candidates {
		if o.Zone == "" {
			continue
		}
		with := ""
		if o.Shares != nil {
			with = " with the reserve"
		}
		_, _ = fmt.Fprintf(a.out, "\n%s by %s%s, by day of %s:\n", strings.Join(o.Limits, " and "), o.Algorithm, with, o.Zone)
		t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		for _, d := range o.Days {
			class := "all requests"
			if len(r.Reserves) > 0 {
				class = "all others"
			}
			if d.Class > 0 {
				class = printable(r.Reserves[d.Class-1].Class)
			}
			first := "never refused"
			if d.FirstRefused != "" {
				at, err := time.Parse(time.RFC3339Nano, d.FirstRefused)
				if err != nil {
					return err
				}
				first = "first refused at " + at.Format("15:04:05.999999")
			}
			_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%d of %d units refused\n", d.Day, class, first, d.RefusedUnits, d.Units)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}
