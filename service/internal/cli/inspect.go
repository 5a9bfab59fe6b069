package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/wire"
)

func (a *app) inspect() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "inspect KEY",
		Short: "Show what counts for a key on Redis and when it resets, without charging",
		Long: `Show what Redis holds of a key under one algorithm: for each --limit the units that count, when the
next one is free and when all are; how long the key lives, its memory, and the charges of a log.

The command only reads: less than a millisecond of Redis. It needs the
rights that sash doctor prints for a limiter, and +memory|usage for the memory.

The key is used as it is, as in sash peek. Keys that Go programs build with sash.Key, and those of
sash serve, are their parts joined by colons: demo:remote_address:192.0.2.7.`,
		Example: `  sash inspect --limit 9500/24h youtube
  sash inspect --limit 10/1m --limit 60/1h demo:remote_address:192.0.2.7
  sash inspect --algorithm gcra --limit 10/1m --json crm-api`,
		Args: exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runInspect(cmd, s, args[0]) },
	}
	s.register(cmd)
	return cmd
}

// An inspection is the JSON of sash inspect.
type inspection struct {
	Key       string       `json:"key"`
	RedisKey  string       `json:"redis_key"`
	Algorithm string       `json:"algorithm"`
	Exists    bool         `json:"exists"`
	At        wire.Instant `json:"at"`
	// TTL is negative for a key that has no expiry.
	TTL    wire.Seconds `json:"ttl"`
	Memory int64        `json:"memory_bytes"`
	// Log is null for an algorithm without a compact one.
	Log    *logState    `json:"log"`
	Limits []limitState `json:"limits"`
}

// logState is what a log holds, also what no longer counts.
type logState struct {
	Charges int   `json:"charges"`
	Units   int64 `json:"units"`
}

// limitState is the state of one limit.
type limitState struct {
	Name      string       `json:"name"`
	Used      int64        `json:"used"`
	Remaining int64        `json:"remaining"`
	NextFree  wire.Seconds `json:"next_free_after"`
	AllFree   wire.Seconds `json:"all_free_after"`
}

func (a *app) runInspect(cmd *cobra.Command, s *subject, key string) error {
	given := len(s.limits) > 0
	if !given {
		s.limits = []string{"1/1s"} // a limiter has one; what Redis holds does not depend on it
	}
	if s.resolution == 0 && s.algorithm == sash.SlidingBuckets.String() {
		return errors.New("--resolution is missing: sliding-buckets of another resolution are another key")
	}
	if key == "" {
		return fmt.Errorf("%w: it is empty", sash.ErrInvalidKey)
	}
	full := key
	if s.prefix != "" {
		full = sash.Key(s.prefix) + ":" + key
	}
	return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter, to *remote) error {
		policy := limiter.Policy()
		in := inspection{Key: full, RedisKey: to.store.Key(full, policy), Algorithm: policy.Algorithm.String(), Limits: []limitState{}}
		state, err := to.store.Inspect(ctx, full, policy)
		if err == nil && state != nil {
			err = in.fill(ctx, state, limiter, key, given)
		}
		if err != nil {
			return to.explain(decide.Remedy(err))
		}
		return output.Print(a.out, s.json, in, func(t *output.Text) { in.text(t, to.address) })
	})
}

// fill copies the state of a key into the JSON form. It looks at the limits if they were given.
func (in *inspection) fill(ctx context.Context, state *redisstore.State, limiter *sash.Limiter, key string, given bool) error {
	in.Exists, in.At, in.TTL, in.Memory = true, wire.Instant(state.At), wire.Seconds(state.TTL), state.Bytes
	policy := limiter.Policy()
	if policy.Algorithm == sash.SlidingLog || policy.Algorithm == sash.SlidingBuckets {
		in.Log = &logState{Charges: len(state.Entries)}
		for _, e := range state.Entries {
			in.Log.Units += e.Units
		}
	}
	if !given {
		return nil
	}
	res, err := limiter.Peek(ctx, key)
	if err != nil {
		return err
	}
	for i, l := range res.Limits() {
		used := l.Limit.Units - l.Remaining
		if l.Remaining == 0 { // a limit that was lowered may have more in its window
			cut, _ := policy.Limits[i].Cut(state.At.UnixMicro())
			inside := int64(0)
			for _, e := range state.Entries {
				if e.At.UnixMicro() > cut {
					inside += e.Units
				}
			}
			used = max(used, inside)
		}
		in.Limits = append(in.Limits, limitState{
			Name: cmp.Or(l.Limit.Name, l.Limit.String()), Used: used, Remaining: l.Remaining,
			NextFree: wire.Seconds(l.ReleaseAfter), AllFree: wire.Seconds(l.ResetAfter),
		})
	}
	return nil
}

// text writes an inspection for people.
func (in *inspection) text(t *output.Text, address string) {
	if !in.Exists {
		t.Say("%s: there is no such key, so nothing is charged under %s; other algorithms have other keys", in.RedisKey, in.Algorithm)
		return
	}
	t.Say("%s  (%s)", output.Printable(in.RedisKey), in.Algorithm)
	t.Say("at       %s, by the clock of redis at %s", instantText(time.Time(in.At)), address)
	if in.TTL < 0 {
		t.Say("expires  never: Sash did not write it")
	} else {
		t.Say("expires  in %v unless it is charged again", time.Duration(in.TTL))
	}
	if in.Memory > 0 {
		t.Say("memory   %s", bytesText(in.Memory))
	}
	if in.Log != nil {
		t.Say("log      %s of %s", output.Count(int64(in.Log.Charges), "charge"), units(in.Log.Units))
	}
	for _, l := range in.Limits {
		free := ""
		if l.AllFree > 0 {
			free = fmt.Sprintf("; the next unit is free in %v, all in %v", time.Duration(l.NextFree), time.Duration(l.AllFree))
		}
		t.Say("%s: %d used, %d left%s", l.Name, l.Used, l.Remaining, free)
	}
}
