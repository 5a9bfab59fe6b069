package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/verify"
)

// verifying holds the flags of sash verify.
type verifying struct {
	history string
	opts    verify.Options
	limits  []string // of a history
}

func (a *app) verify() *cobra.Command {
	v := &verifying{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the guarantees on your Redis, or the calls that any limiter answered",
		Long: `Request units from your Redis with many workers at once, record every answer with the server's time,
and check the whole history against the definition:

  for every instant, the units admitted in the trailing window are at most the limit's units
  a call was refused only if a limit had no room for it
  every retry time was the shortest: exact to the microsecond

The seed determines limits, costs and keys; the machine determines the timing. Keys have a prefix of
their own and are removed at the end. The load on the server is some ten thousand calls a second.

The exit code is 0 if every promise was kept, 1 if one was broken, and 2 if nothing can be judged or
the check could not go on. It ends at the first round of four seconds that breaks a promise. To see
it find a violation, run it with --algorithm fixed-window, sliding-counter or gcra, which are not
exact.

With --history it calls nothing, and judges calls that any limiter answered, in any language. Each
line of the file is one call, with the time before the limiter was called and the time after it:

  {"key": "user_7", "cost": 1, "sent": 1763900000.001, "received": 1763900000.003, "admitted": true}

Times are seconds or RFC 3339, by one clock; cost is 1 if absent. A call without an answer has no
"admitted". It reports what is certain: a window that held more than its limit, and a refusal that
had room, wherever between its two times each call was decided.`,
		Example: `  sash verify --redis redis://127.0.0.1:6379
  sash verify --for 10s --algorithm fixed-window   # $SASH_REDIS is set; finds twice the limit
  sash verify --history calls.jsonl --limit 100/1m --limit 1000/1h`,
		Args: noAddress,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				v.opts.Seed = uint64(rand.Uint32())
			}
			if v.history != "" {
				return a.verifyHistory(cmd, v)
			}
			if len(v.limits) > 0 {
				return errors.New("--limit: give --history FILE too, the calls to judge")
			}
			return a.runVerify(cmd.Context(), v)
		},
	}
	f := cmd.Flags()
	a.redisFlag(f)
	f.DurationVar(&v.opts.For, "for", 30*time.Second, "how long to run")
	f.Uint64Var(&v.opts.Seed, "seed", 0, "seed of limits, costs and keys (default: a new one, which is printed)")
	f.IntVar(&v.opts.Workers, "workers", 16, "number of concurrent callers, from 1 to 1000")
	f.TextVar(&v.opts.Algorithm, "algorithm", sash.SlidingLog, algorithmUsage)
	f.StringVar(&v.history, "history", "", "judge the calls in this `file` instead, which any limiter answered: JSON lines, or - for standard input")
	f.StringArrayVarP(&v.limits, "limit", "l", nil, "with --history: the `limit` of each key, such as 100/1m; repeat it for several that hold together")
	a.jsonFlag(f)
	return cmd
}

func (a *app) runVerify(ctx context.Context, v *verifying) error {
	if v.opts.For < time.Second {
		return fmt.Errorf("--for %v: give a second at least", v.opts.For)
	}
	if v.opts.Workers < 1 || v.opts.Workers > 1000 {
		return fmt.Errorf("--workers %d: give a number from 1 to 1000", v.opts.Workers)
	}
	to, err := a.shared()
	if err != nil {
		return err
	}
	defer to.client.Close()
	report, err := verify.Run(ctx, to.store, v.opts)
	if err != nil {
		if !errors.Is(err, verify.ErrClock) {
			err = to.explain(cause.Remedy(err))
		}
		return fmt.Errorf("%w; until then %d calls broke no promise (seed %d)", err, report.Calls(), v.opts.Seed)
	}
	return a.judged(&verdict{
		Algorithm: v.opts.Algorithm.String(), Seed: v.opts.Seed, Workers: v.opts.Workers, Seconds: report.Took.Seconds(), Report: report,
	})
}

func (a *app) verifyHistory(cmd *cobra.Command, v *verifying) error {
	for _, flag := range []string{"redis", "algorithm", "for", "seed", "workers"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s: with --history it has no effect; no store is called", flag)
		}
	}
	if len(v.limits) == 0 {
		return errors.New("--history: give --limit too, the limit that each key should have been held to, such as --limit 100/1m")
	}
	limits, err := limitsOf(v.limits)
	if err != nil {
		return err
	}
	for _, l := range limits {
		if l.Period != 0 {
			return fmt.Errorf("--limit %s: a calendar limit has no sliding window to judge", l.Name)
		}
	}
	name, from := v.history, cmd.InOrStdin()
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	recording, err := verify.ReadRecording(name, from)
	if err != nil {
		return err
	}
	return a.judged(&verdict{Limits: v.limits, Report: recording.Judge(limits)})
}

// A verdict is the JSON of sash verify: of a history with its limits, or of a run.
type verdict struct {
	Verdict   string   `json:"verdict"` // kept or violated
	Limits    []string `json:"limits,omitempty"`
	Algorithm string   `json:"algorithm,omitempty"`
	Seed      uint64   `json:"seed,omitempty"`
	Workers   int      `json:"workers,omitempty"`
	Seconds   float64  `json:"seconds,omitempty"`
	verify.Report
	Faults []map[string]any `json:"faults"` // one for each key whose history breaks a promise
}

func (a *app) judged(v *verdict) error {
	v.Verdict, v.Faults = "kept", []map[string]any{}
	for _, f := range v.Report.Faults {
		row := map[string]any{
			"key": f.Key, "over_admitted": f.OverAdmitted, "false_refusals": f.FalseRefusals, "wrong_retry_times": f.WrongWaits,
		}
		if f.Over != nil { // the limit with the largest excess, the units in its window, and when that window ended
			row["limit"], row["units"], row["ends"] = f.Over.Limit.String(), f.Over.Units, instantText(f.Over.Ends)
		}
		v.Verdict, v.Faults = "violated", append(v.Faults, row)
	}
	err := a.print(v, v.text)
	if err == nil && len(v.Faults) > 0 {
		return errFound
	}
	return err
}

// text writes a verdict. It claims no more than was checked.
func (v *verdict) text(t *output.Text) {
	r := &v.Report
	refusals := "no call that fitted was refused, every retry time was exact"
	switch {
	case v.Limits != nil && r.Refused == 0:
		refusals = "no call was refused, which shows little"
	case v.Limits != nil:
		refusals = "no call was refused that certainly had room"
	case r.Doubtful > 0:
		refusals = fmt.Sprintf("%d of %d refusals were right, with exact retry times;\n  the other %d came after a call without an answer, "+
			"which may have been charged: no retry time was too short", r.Refused-r.Doubtful, r.Refused, r.Doubtful)
	}
	if v.Algorithm == sash.SlidingBuckets.String() {
		refusals += " to the resolution"
	}
	if len(r.Faults) == 0 {
		t.Say("kept: no window held more than its limit, %s", refusals)
	} else {
		t.Say("violated: %d of %s", len(r.Faults), output.Count(int64(r.Keys), "key"))
		faultText(t, &r.Faults[0])
	}
	if len(r.Faults) > 0 && r.Unanswered > 0 {
		t.Say("  %d calls had no answer: a server that lost its state, by a restart or a failover, may admit a limit's units again", r.Unanswered)
	}
	if v.Limits == nil {
		t.Say("  %s, %d workers, seed %d, %.3fs", v.Algorithm, v.Workers, v.Seed, v.Seconds)
	} else {
		t.Say("  limits %s", strings.Join(v.Limits, " and "))
	}
	t.Say("  %s on %s: %d admitted (%s), %d refused, %d without an answer",
		output.Count(int64(r.Calls()), "call"), output.Count(int64(r.Keys), "key"), r.Admitted, units(r.Units), r.Refused, r.Unanswered)
}

func faultText(t *output.Text, f *verify.Fault) {
	key := output.Printable(f.Key)
	if o := f.Over; o != nil {
		t.Say("  over the limit: %q was admitted %s in the %v that end at %s, and the limit is %s; %s went over",
			key, units(o.Units), o.Limit.Window, instantText(o.Ends), o.Limit, output.Count(int64(f.OverAdmitted), "admission"))
	}
	if o := f.False; o != nil {
		t.Say("  refused with room: %d times; the first, of %s of %q at %s", f.FalseRefusals, units(o.Cost), key, instantText(o.At))
	}
	if o := f.Wrong; o != nil {
		t.Say("  wrong retry times: %d; the first, of %s of %q at %s, was %v and should have been %v to %v",
			f.WrongWaits, units(o.Cost), key, instantText(o.At), o.Said, o.Least, o.Most)
	}
}
