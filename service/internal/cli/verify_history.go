package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash"
	"example.com/sash/service/internal/verify"
)

// recorded is the flags of sash verify that name a recording of another limiter.
type recorded struct {
	history string
	limits  []string
}

func (r *recorded) register(f *pflag.FlagSet) {
	f.StringVar(&r.history, "history", "", "judge the calls in this `file` instead, which any limiter answered: JSON lines, or - for standard input")
	f.StringArrayVarP(&r.limits, "limit", "l", nil, "with --history: the `limit` of each key, such as 100/1m; repeat it for several that hold together")
}

// check returns what is wrong with flags that do not belong together.
func (r *recorded) check(cmd *cobra.Command) error {
	if r.history == "" {
		if len(r.limits) > 0 {
			return errors.New("--limit: give --history FILE too, the calls to judge")
		}
		return nil
	}
	for _, flag := range []string{"redis", "algorithm", "for", "seed", "workers"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s: with --history it has no effect; no store is called", flag)
		}
	}
	if len(r.limits) == 0 {
		return errors.New("--history: give --limit too, the limit that each key should have been held to, such as --limit 100/1m")
	}
	return nil
}

func (a *app) verifyHistory(cmd *cobra.Command, v *verifying) error {
	limits := make([]sash.Limit, len(v.recorded.limits))
	for i, text := range v.recorded.limits {
		limit, err := sash.ParseLimit(text)
		if err != nil {
			return err
		}
		if limit.Period != 0 {
			return fmt.Errorf("--limit %s: a calendar limit has no sliding window to judge", text)
		}
		limits[i] = limit
	}
	name, from := v.recorded.history, cmd.InOrStdin()
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
	recording, err := verify.ReadRecording(name, interruptible{cmd.Context().Err, from})
	if err != nil {
		return err
	}
	verdict := recording.Judge(limits)
	err = a.print(v.json, historyAnswer(limits, &verdict), func(t *text) { historyText(t, limits, &verdict) })
	if err != nil || len(verdict.Faults) == 0 {
		return err
	}
	return errFound
}

// interruptible is a reader that ends with an error once ended returns one.
type interruptible struct {
	ended func() error
	from  io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

func historyText(t *text, limits []sash.Limit, v *verify.Tally) {
	over, room := faultsOf(v)
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	said := strings.Join(texts, ",")
	switch {
	case over > 0:
		t.say("violated: %s went over %s, on %d of %s", count(int64(over), "admission"), said, keysOver(v), count(int64(v.Keys), "key"))
	case room > 0:
		t.say("violated: no window held more than %s, but %s had room", said, count(int64(room), "refusal"))
	case v.Refused == 0:
		t.say("kept, which shows little: no window held more than %s, and no call was refused", said)
	default:
		t.say("kept: no window held more than %s, and no call was refused that certainly had room", said)
	}
	if over > 0 {
		f := v.Faults[0]
		t.say("  worst: %q was admitted %s in the %s that ends at %s; the limit is %s", printable(f.Key), units(f.Over.Units), windowText(f.Over.Limit), instantText(f.Over.Ends), f.Over.Limit)
	}
	if over > 0 && room > 0 {
		t.say("  %s had room", count(int64(room), "refusal"))
	}
	for _, f := range v.Faults {
		if f.False != nil {
			t.say("  a refusal that had room: %s of %q, sent at %s", units(f.False.Cost), printable(f.Key), instantText(f.False.At))
			break
		}
	}
	t.say("  %s on %s: %d admitted (%s), %d refused, %d without an answer",
		count(int64(v.Admitted+v.Refused+v.Unanswered), "call"), count(int64(v.Keys), "key"), v.Admitted, units(v.Units), v.Refused, v.Unanswered)
}

// faultsOf counts admissions that went over a limit, and refusals that had room.
func faultsOf(v *verify.Tally) (over, room int) {
	for _, f := range v.Faults {
		over, room = over+f.OverAdmitted, room+f.FalseRefusals
	}
	return over, room
}

func keysOver(v *verify.Tally) (n int) {
	for _, f := range v.Faults {
		if f.OverAdmitted > 0 {
			n++
		}
	}
	return n
}

// windowText writes the window of a limit as the limit does.
func windowText(l sash.Limit) string {
	_, window, _ := strings.Cut(l.String(), "/")
	return window
}

// historyJSON is the JSON of sash verify --history.
type historyJSON struct {
	Verdict string   `json:"verdict"` // kept or violated
	Limits  []string `json:"limits"`
	verify.Tally
	OverAdmitted  int         `json:"over_admitted"`
	FalseRefusals int         `json:"false_refusals"`
	Faults        []faultJSON `json:"faults"`
}

func historyAnswer(limits []sash.Limit, v *verify.Tally) historyJSON {
	out := historyJSON{Tally: *v}
	for _, l := range limits {
		out.Limits = append(out.Limits, l.String())
	}
	out.OverAdmitted, out.FalseRefusals = faultsOf(v)
	out.Faults, out.Verdict = faultRows(v.Faults)
	return out
}
