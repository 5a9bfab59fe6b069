package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/verify"
)

// verifying is the flags of sash verify.
type verifying struct {
	redis, algorithm string
	opts             verify.Options
	recorded         recorded
	json             bool
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
the check could not go on: then it prints what it saw until then. It ends at the first round of four
seconds that breaks a promise. To see it find a violation, run it with --algorithm fixed-window,
sliding-counter or gcra, which are not exact.

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
			if err := v.recorded.check(cmd); err != nil {
				return err
			}
			if v.recorded.history != "" {
				return a.verifyHistory(cmd, v)
			}
			return a.runVerify(cmd.Context(), v)
		},
	}
	f := cmd.Flags()
	redisFlag(f, &v.redis)
	f.DurationVar(&v.opts.For, "for", 30*time.Second, "how long to run")
	f.Uint64Var(&v.opts.Seed, "seed", 0, "seed of limits, costs and keys (default: a new one, which is printed)")
	f.IntVar(&v.opts.Workers, "workers", 16, "number of concurrent callers, from 1 to 1000")
	f.StringVar(&v.algorithm, "algorithm", sash.SlidingLog.String(), algorithmUsage)
	v.recorded.register(f)
	jsonFlag(f, &v.json)
	return cmd
}

func (a *app) runVerify(ctx context.Context, v *verifying) error {
	if err := v.opts.Algorithm.UnmarshalText([]byte(v.algorithm)); err != nil {
		return err
	}
	if v.opts.For < time.Second {
		return fmt.Errorf("--for %v: give a second at least", v.opts.For)
	}
	if v.opts.Workers < 1 || v.opts.Workers > 1000 {
		return fmt.Errorf("--workers %d: give a number from 1 to 1000", v.opts.Workers)
	}
	to, err := a.shared(v.redis)
	if err != nil {
		return err
	}
	defer to.close()
	report, ended := verify.Run(ctx, to.store, v.opts)
	if ended != nil && !errors.Is(ended, verify.ErrClock) {
		ended = to.explain(decide.Remedy(ended))
	}
	if ended != nil && !report.Answered() {
		return fmt.Errorf("%w; nothing was judged (seed %d)", ended, v.opts.Seed)
	}
	err = a.print(v.json, verifyAnswer(v, &report, ended), func(t *text) { verifyText(t, v, &report, ended) })
	switch {
	case err != nil:
		return err
	case ended != nil && v.json:
		return errPartial
	case ended != nil:
		return ended
	case len(report.Faults) > 0:
		return errFound
	}
	return nil
}

func verifyText(t *text, v *verifying, r *verify.Report, ended error) {
	kept := "kept"
	if ended != nil {
		kept = "kept so far"
	}
	held := ""
	if v.opts.Algorithm == sash.SlidingBuckets {
		held = " to the resolution"
	}
	switch {
	case len(r.Faults) > 0:
		t.say("violated: %d of %d keys", len(r.Faults), r.Keys)
	case r.Doubtful == 0:
		t.say("%s: no window held more than its limit, no call that fitted was refused, every retry time was exact%s", kept, held)
	default:
		t.say("%s: no window held more than its limit; %d of %d refusals were right, with exact retry times%s", kept, r.Refused-r.Doubtful, r.Refused, held)
		t.say("  the other %d came after a call without an answer, which may have been charged: no retry time was too short;", r.Doubtful)
		t.say("  whether one was too long, or was for units that were never charged, is unknown")
	}
	if f := r.Worst(); f != nil {
		faultText(t, f)
		if r.Unanswered > 0 {
			t.say("  %d calls had no answer: a server that lost its state, by a restart or a failover, may admit a limit's units again", r.Unanswered)
		}
	}
	t.say("  %s, %d workers, seed %d, %v", v.opts.Algorithm, v.opts.Workers, v.opts.Seed, r.Took.Round(time.Millisecond))
	t.say("  %d calls on %d keys: %d admitted (%s), %d refused, %d without an answer",
		r.Admitted+r.Refused+r.Unanswered, r.Keys, r.Admitted, units(r.Units), r.Refused, r.Unanswered)
}

func faultText(t *text, f *verify.Fault) {
	if o := f.Over; o != nil {
		t.say("  over the limit: %d units were admitted in the %v that end at %s, and the limit is %s; %d admissions went over",
			o.Units, o.Limit.Window, stamp(o.Ends), o.Limit, f.OverAdmitted)
	}
	if o := f.False; o != nil {
		t.say("  false refusals: %d; the first, of %s at %s, had room", f.FalseRefusals, units(o.Cost), stamp(o.At))
	}
	if o := f.Wrong; o != nil {
		t.say("  wrong retry times: %d; the first, of %s at %s, was %v and should have been %v", f.WrongWaits, units(o.Cost), stamp(o.At), o.Said, between(o.Least, o.Most))
	}
}

func between(least, most time.Duration) string {
	if least == most {
		return least.String()
	}
	return fmt.Sprintf("%v to %v", least, most)
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// verifyJSON is the JSON of sash verify.
type verifyJSON struct {
	Verdict   string  `json:"verdict"`
	Algorithm string  `json:"algorithm"`
	Seed      uint64  `json:"seed"`
	Workers   int     `json:"workers"`
	Seconds   float64 `json:"seconds"`
	Doubtful  int     `json:"doubtful_refusals"` // after a call without an answer, so that less can be checked
	verify.Tally
	Faults []faultJSON `json:"faults"`
	Error  string      `json:"error,omitempty"` // why it ended early; the rest is what was seen until then
}

// faultJSON is one key whose history breaks a promise.
type faultJSON struct {
	Key           string `json:"key"`
	Limit         string `json:"limit,omitempty"` // the limit that was exceeded the most
	Units         int64  `json:"units,omitempty"` // in that window
	Ends          string `json:"ends,omitempty"`  // the window
	OverAdmitted  int    `json:"over_admitted"`
	FalseRefusals int    `json:"false_refusals"`
	WrongWaits    int    `json:"wrong_retry_times"`
}

// faultRows returns the rows of faults, and the verdict.
func faultRows(faults []verify.Fault) (rows []faultJSON, verdict string) {
	rows, verdict = []faultJSON{}, "kept"
	for _, f := range faults {
		row := faultJSON{Key: f.Key, OverAdmitted: f.OverAdmitted, FalseRefusals: f.FalseRefusals, WrongWaits: f.WrongWaits}
		if f.Over != nil {
			row.Limit, row.Units, row.Ends = f.Over.Limit.String(), f.Over.Units, instantText(f.Over.Ends)
		}
		rows, verdict = append(rows, row), "violated"
	}
	return rows, verdict
}

func verifyAnswer(v *verifying, r *verify.Report, ended error) verifyJSON {
	out := verifyJSON{
		Algorithm: v.opts.Algorithm.String(), Seed: v.opts.Seed, Workers: v.opts.Workers, Seconds: r.Took.Seconds(),
		Doubtful: r.Doubtful, Tally: r.Tally,
	}
	out.Faults, out.Verdict = faultRows(r.Faults)
	if ended != nil {
		out.Error = ended.Error()
		if out.Verdict == "kept" {
			out.Verdict = "kept so far"
		}
	}
	return out
}
