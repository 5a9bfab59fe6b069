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
	most := 20
	cmd := &cobra.Command{
		Use:   "inspect KEY",
		Short: "Show what Redis holds of a key, on a time axis, without charging or changing anything",
		Long: `Show what Redis holds of a key under one algorithm: the charges and their times, on a time axis for
each --limit, the units used in the window, when the next unit is free and when all are, how long
the key lives, and its memory. Without a --limit a log is shown over the longest window of its
limits so far.

The command only reads, in one step: a few milliseconds of Redis for a log of 100,000 entries, and
up to half a second for a sorted set of as many. It needs the rights that sash doctor prints for a
limiter, and +memory|usage for the memory.

The key is used as it is, as in sash peek. Keys that Go programs build with sash.Key, and those of
sash serve, are their parts joined by colons: demo:remote_address:192.0.2.7.`,
		Example: `  sash inspect --limit 9500/24h youtube
  sash inspect --limit 10/1m --limit 60/1h demo:remote_address:192.0.2.7
  sash inspect --algorithm gcra --limit 10/1m --json crm-api`,
		Args: exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 0 {
				return errors.New("--entries must be at least 0")
			}
			return a.runInspect(cmd, s, args[0], most)
		},
	}
	s.register(cmd)
	cmd.Flags().IntVar(&most, "entries", most, "number of newest charges to list; --json has all")
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
	TTL    wire.Seconds  `json:"ttl"`
	Memory int64         `json:"memory_bytes"`
	Log    *inspectedLog `json:"log,omitempty"`
	Counts []counted     `json:"windows,omitempty"`
	Limits []limitState  `json:"limits"`

	state *redisstore.State
	cuts  []time.Time // the last instant that each limit no longer counts
}

type inspectedLog struct {
	Keep      wire.Seconds `json:"longest_window"`
	KeepUnits int64        `json:"largest_limit"`
	MaySettle bool         `json:"may_settle"`
	Slots     int64        `json:"slots,omitempty"`
	Entries   []charged    `json:"entries"`
}

type charged struct {
	At    wire.Instant `json:"at"`
	Units int64        `json:"units"`
}

// counted is what Redis keeps of one window for an algorithm without a log.
type counted struct {
	Window   wire.Seconds  `json:"window"`
	Calendar string        `json:"calendar,omitempty"`
	Start    *wire.Instant `json:"start,omitempty"`
	Count    int64         `json:"count,omitempty"`
	Previous int64         `json:"previous,omitempty"`
	At       *wire.Instant `json:"at,omitempty"`
	Debt     wire.Seconds  `json:"debt,omitempty"`
}

// limitState is the state of one limit.
type limitState struct {
	Name      string       `json:"name"`
	Used      int64        `json:"used"`
	Remaining int64        `json:"remaining"`
	NextFree  wire.Seconds `json:"next_free_after"`
	AllFree   wire.Seconds `json:"all_free_after"`
}

func (a *app) runInspect(cmd *cobra.Command, s *subject, key string, most int) error {
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
			in.text(t, to.address, most)
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
	in.Exists, in.At, in.TTL, in.Memory, in.state = true, wire.Instant(state.At), wire.Seconds(state.TTL), state.Bytes, state
	if l := state.Log; l != nil {
		in.Log = &inspectedLog{wire.Seconds(l.Keep), l.KeepUnits, l.MaySettle, l.Slots, []charged{}}
		for _, e := range l.Entries {
			in.Log.Entries = append(in.Log.Entries, charged{wire.Instant(e.At), e.Units})
		}
	}
	for _, c := range state.Counted {
		row := counted{Window: wire.Seconds(c.Window), Count: c.Count, Previous: c.Previous, Debt: wire.Seconds(c.Debt)}
		if c.Window == 0 {
			row.Calendar = c.ID
		}
		row.Start, row.At = instant(c.Start), instant(c.At)
		in.Counts = append(in.Counts, row)
	}
	if !given {
		return
	}
	policy := limiter.Policy()
	for i, l := range limiter.Result("", state.Look(policy)).Limits() {
		cut, _ := policy.Limits[i].Cut(state.At.UnixMicro())
		in.cuts = append(in.cuts, time.UnixMicro(cut))
		in.Limits = append(in.Limits, limitState{
			Name: cmp.Or(l.Limit.Name, l.Limit.String()), Used: in.used(l, in.cuts[i]), Remaining: l.Remaining,
			NextFree: wire.Seconds(l.ReleaseAfter), AllFree: wire.Seconds(l.ResetAfter),
		})
	}
}

// used returns the units in a limit's window. A limit that was lowered may have fewer.
func (in *inspection) used(l sash.LimitResult, cut time.Time) int64 {
	used := l.Limit.Units - l.Remaining
	if in.Log == nil || l.Remaining > 0 {
		return used
	}
	inside := int64(0)
	for _, e := range in.state.Log.Entries {
		if e.At.After(cut) {
			inside += e.Units
		}
	}
	return max(used, inside)
}

func instant(t time.Time) *wire.Instant {
	if t.IsZero() {
		return nil
	}
	i := wire.Instant(t)
	return &i
}
