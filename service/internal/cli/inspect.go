package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/wire"
)

func (a *app) inspect() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "inspect KEY",
		Short: "Show what Redis holds of a key, without charging or changing anything",
		Long: `Show what Redis holds of a key under one algorithm: the units charged, how long the key lives, its
memory, and for each --limit the units used in the window, when the next unit is free and when all
are.

The command only reads, in one step: a few milliseconds of Redis for a log of 100,000 entries, and
up to half a second for a sorted set of as many. It needs the rights that sash doctor prints for a
limiter, and +memory|usage for the memory. The dashboard of sash serve draws a log on a time axis.

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
	// Charges and Units are those of a log. Windows are what an algorithm without one keeps.
	Charges int          `json:"charges,omitempty"`
	Units   int64        `json:"units,omitempty"`
	Windows []string     `json:"windows,omitempty"`
	Limits  []limitState `json:"limits"`
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
	limiter, err := s.limiter(nowhere{})
	if err != nil {
		return err
	}
	policy := limiter.Policy()
	if key == "" {
		return fmt.Errorf("%w: it is empty", sash.ErrInvalidKey)
	}
	if s.prefix != "" {
		key = sash.Key(s.prefix) + ":" + key
	}
	to, err := a.shared(s.redis)
	if err != nil {
		return err
	}
	defer to.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
	defer cancel()
	state, err := to.store.Inspect(ctx, key, policy)
	if err != nil {
		return to.explain(redisclient.Remedy(err))
	}
	in := inspection{Key: key, RedisKey: to.store.Key(key, policy), Algorithm: policy.Algorithm.String(), Limits: []limitState{}}
	if state != nil {
		in.fill(state, limiter, given)
	}
	return a.print(s.json, in, func(t *text) {
		if state != nil {
			in.text(t, to.address)
			return
		}
		t.say("%s: there is no such key, so nothing is charged under %s", in.RedisKey, in.Algorithm)
		for _, other := range elsewhere(ctx, to, key, policy) {
			t.say("But there is %s", other)
		}
	})
}

// elsewhere returns what the key has under other algorithms, as far as the user may read it.
func elsewhere(ctx context.Context, to *remote, key string, not *driver.Policy) (found []string) {
	for _, algorithm := range sash.Algorithms() {
		if algorithm == not.Algorithm || algorithm == sash.SlidingBuckets {
			continue
		}
		policy, err := sash.NewPolicy(&sash.Options{Algorithm: algorithm}, sash.PerSecond(1))
		if err != nil {
			continue
		}
		name := to.store.Key(key, policy)
		reply, err := to.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Exists().Key(name).Build() })
		if n, _ := reply.AsInt64(); err == nil && n > 0 {
			found = append(found, fmt.Sprintf("%s: see it with --algorithm %s", name, algorithm))
		}
	}
	return found
}

// fill copies the state into the JSON form.
func (in *inspection) fill(state *redisstore.State, limiter *sash.Limiter, given bool) {
	in.Exists, in.At, in.TTL, in.Memory = true, wire.Instant(state.At), wire.Seconds(state.TTL), state.Bytes
	var entries []redisstore.Entry
	if state.Log != nil {
		entries = state.Log.Entries
	}
	in.Charges = len(entries)
	for _, e := range entries {
		in.Units += e.Units
	}
	for _, c := range state.Counted {
		in.Windows = append(in.Windows, countedText(c))
	}
	if !given {
		return
	}
	policy := limiter.Policy()
	for i, l := range limiter.Result("", state.Look(policy)).Limits() {
		cut, _ := policy.Limits[i].Cut(state.At.UnixMicro())
		inside := int64(0) // of a limit that was lowered: more than its units
		for _, e := range entries {
			if e.At.UnixMicro() > cut {
				inside += e.Units
			}
		}
		used := l.Limit.Units - l.Remaining
		if l.Remaining == 0 {
			used = max(used, inside)
		}
		in.Limits = append(in.Limits, limitState{
			Name: cmp.Or(l.Limit.Name, l.Limit.String()), Used: used, Remaining: l.Remaining,
			NextFree: wire.Seconds(l.ReleaseAfter), AllFree: wire.Seconds(l.ResetAfter),
		})
	}
}

// text writes an inspection for people.
func (in *inspection) text(t *text, address string) {
	t.say("%s  (%s)", printable(in.RedisKey), in.Algorithm)
	t.say("at       %s, by the clock of redis at %s", instantText(time.Time(in.At)), address)
	if in.TTL < 0 {
		t.say("expires  never: Sash did not write it")
	} else {
		t.say("expires  in %v unless it is charged again", time.Duration(in.TTL))
	}
	if in.Memory > 0 {
		t.say("memory   %s", bytesText(in.Memory))
	}
	if in.Windows == nil {
		t.say("log      %s of %s", count(int64(in.Charges), "charge"), units(in.Units))
	}
	for _, w := range in.Windows {
		t.say("window   %s", w)
	}
	for _, l := range in.Limits {
		free := ""
		if l.AllFree > 0 {
			free = fmt.Sprintf("; the next unit is free in %v, all in %v", time.Duration(l.NextFree), time.Duration(l.AllFree))
		}
		t.say("%s: %d used, %d left%s", l.Name, l.Used, l.Remaining, free)
	}
}

// countedText describes what Redis keeps of one window.
func countedText(c redisstore.Counted) string {
	name := c.Window.String()
	if c.Window == 0 {
		name = "of the calendar (" + c.ID + ")"
	}
	if !c.At.IsZero() {
		return fmt.Sprintf("%s: %v owed at %s, of at most the window", name, c.Debt, instantText(c.At))
	}
	text := fmt.Sprintf("%s: %s since %s", name, units(c.Count), instantText(c.Start))
	if c.Previous > 0 {
		text += fmt.Sprintf(", and %s in the window before", units(c.Previous))
	}
	return text
}
