package logs

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
)

// replayFlags is the flags of sash-logs replay.
type replayFlags struct {
	logs
	try        []string
	algorithms []string
	resolution time.Duration
	worst      int
	failIf     []string
	html       string
	client     string
}

func (r *replayFlags) register(cmd *cobra.Command) {
	r.logs.register(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&r.try, "try", nil, "`limits` to try, such as 60/1m, or several that hold together: 20/1s,600/1m; repeat it to compare limits")
	f.StringSliceVar(&r.algorithms, "algorithm", []string{sash.SlidingLog.String()}, "how windows are counted; give several to compare them")
	f.DurationVar(&r.resolution, "resolution", time.Second, "step of sliding-buckets")
	f.StringVar(&r.policy.file, "policy", "", "configuration `file` to try")
	f.StringVar(&r.policy.domain, "domain", "", "domain of the configuration (default: its only one)")
	f.StringArrayVar(&r.policy.entries, "entry", nil, "entry of a request's descriptor: its key, =, and an expression; repeat it for several (default: remote_address=remote_address)")
	f.IntVar(&r.worst, "worst", 5, "number of most refused clients and routes to list")
	f.StringArrayVar(&r.failIf, "fail-if", nil, "exit with 1 if a candidate meets this `condition`, such as 'clients-limited>0.1%', 'refused>=100' or 'broken>1%'")
	f.StringVar(&r.html, "html", "", "also write a report with charts to this `file`: one page that needs no other files")
	f.StringVar(&r.client, "client", "", "client whose window the report shows (default: the one that the first candidate refuses most)")
}

// candidates returns every --try with every algorithm.
func (r *replayFlags) candidates() ([]replay.Candidate, error) {
	if len(r.try) == 0 && r.policy.file == "" {
		return nil, errors.New("--try is missing, such as --try 60/1m (sash-logs suggest proposes limits)")
	}
	if len(r.try) > 0 && r.policy.file != "" {
		return nil, errors.New("--try and --policy charge different keys: run them one after the other")
	}
	algorithms, err := algorithms(r.algorithms)
	if err != nil {
		return nil, err
	}
	if len(algorithms) == 0 {
		return nil, errors.New("give at least one --algorithm")
	}
	if r.policy.file != "" {
		return []replay.Candidate{{Name: r.policy.file}}, nil
	}
	var all []replay.Candidate
	for _, try := range r.try {
		limits, err := replay.ParseLimits(try)
		if err != nil {
			return nil, err
		}
		for _, algorithm := range algorithms {
			c := replay.Candidate{Limits: limits, Options: sash.Options{Algorithm: algorithm}}
			if algorithm == sash.SlidingBuckets {
				c.Options.Resolution = r.resolution
			}
			if err := c.Check(); err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// unused returns an error for a flag that would change nothing.
func (r *replayFlags) unused(cmd *cobra.Command) error {
	names, why := []string{"domain", "entry"}, "is for --policy, and not for --try"
	if r.policy.file != "" {
		names, why = []string{"algorithm", "resolution", "key"}, "is for --try, and not for --policy: the configuration has it (and --entry the subject)"
	}
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s %s", name, why)
		}
	}
	return nil
}

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
