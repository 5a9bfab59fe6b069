package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/wire"
)

const algorithmUsage = "`algorithm` by which windows are counted: sliding-log, sorted-set-log, sliding-buckets, sliding-counter, fixed-window or gcra"

// subject holds the flags of commands on one subject.
type subject struct {
	limits     []string
	algorithm  sash.Algorithm
	resolution time.Duration
	prefix     string
	timeout    time.Duration
	cost       int64
	wait       time.Duration
	reserves   bool // the answer has a token
}

func (a *app) register(cmd *cobra.Command, s *subject) {
	f := cmd.Flags()
	a.redisFlag(f)
	f.StringArrayVarP(&s.limits, "limit", "l", nil, "`limit` such as 9500/24h; repeat it for several, which must all have room")
	f.TextVar(&s.algorithm, "algorithm", sash.SlidingLog, algorithmUsage)
	f.DurationVar(&s.resolution, "resolution", 0, "step of sliding-buckets, such as 1s")
	f.StringVar(&s.prefix, "prefix", "", "prefix that separates this application's keys from others")
	f.DurationVar(&s.timeout, "timeout", 2*time.Second, "how long to wait for Redis")
	a.jsonFlag(f)
}

func (s *subject) limiter(store driver.Store) (*sash.Limiter, error) {
	limits, err := s.own()
	if err != nil {
		return nil, err
	}
	return sash.New(store, &sash.Options{Algorithm: s.algorithm, Prefix: s.prefix, Resolution: s.resolution}, limits...)
}

// own returns the limits in the flags.
func (s *subject) own() ([]sash.Limit, error) {
	if len(s.limits) == 0 {
		return nil, errors.New("--limit is missing, such as --limit 9500/24h")
	}
	return limitsOf(s.limits)
}

// full returns a key with the prefix in the flags, as a limiter writes it.
func (s *subject) full(key string) string {
	if s.prefix == "" {
		return key
	}
	return sash.Key(s.prefix) + ":" + key
}

func limitsOf(texts []string) ([]sash.Limit, error) {
	limits := make([]sash.Limit, len(texts))
	for i, text := range texts {
		var err error
		if limits[i], err = sash.ParseLimit(text); err != nil {
			return nil, err
		}
		limits[i].Name = text
	}
	return limits, nil
}

// on calls f with the limiter that the flags describe and with its store.
func (a *app) on(cmd *cobra.Command, s *subject, f func(context.Context, *sash.Limiter, *remote) error) error {
	if _, err := s.limiter(nowhere{}); err != nil { // wrong flags are reported before a missing Redis
		return err
	}
	if s.timeout <= 0 {
		return fmt.Errorf("--timeout %v: give how long to wait for Redis, such as 2s", s.timeout)
	}
	to, err := a.shared()
	if err != nil {
		return err
	}
	defer to.client.Close()
	limiter, err := s.limiter(to.store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
	defer cancel()
	err = f(ctx, limiter, to)
	if errors.Is(err, sash.ErrUnavailable) || err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
		return to.explain(err)
	}
	return err
}

// nowhere is a store for checking flags.
type nowhere struct{ driver.Store }

func (a *app) allow() *cobra.Command {
	return a.charging(false, &cobra.Command{
		Use:   "allow --limit LIMIT KEY [AND --limit LIMIT KEY]...",
		Short: "Request units and charge them; exit 0 if allowed, 1 if refused",
		Long: `Request units for a key. If every limit has room, the units are charged to all of them and the exit
code is 0. Otherwise nothing is charged, the exit code is 1, and the answer says how many units are
left and when the same call would be admitted. Exit code 2 is an error: there was no decision, or it
did not arrive. The call may have been charged then, and is not allowed.

After AND comes another key with its own --limit and --cost: all keys are charged, or none. A key
called AND goes behind --.

With --wait the command waits for its turn, if that comes in time: behind all that wait already, on
whatever machine, first come first served. It ends when it may start. If its turn comes later it is
refused at once; if it is interrupted it gives its place back.

The key is used as it is. Keys that Go programs build with sash.Key, and those of sash serve, are
their parts joined by colons: demo:remote_address:192.0.2.7.`,
		Example: `  sash allow --redis redis://127.0.0.1:6379 --limit 9500/24h youtube --cost 100
  sash allow --limit 25/5s --limit 300/1m crm-api   # $SASH_REDIS is set; both must have room
  sash allow --limit 5/1s crm:ann AND --limit 25/5s crm-api
  sash allow --limit 25/5s crm-api --wait 30s && curl https://crm.example/api/contacts`,
	})
}

func (a *app) peek() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "peek --limit LIMIT KEY",
		Short: "Show what is left without charging; exit 0 if there is room, 1 if not",
		Long: `Show what is left for a key, without charging anything. The exit code is 0 if the cost would be
admitted now, and 1 if it would not. The retry time is when the next units are released: exact for a
cost of 1; a larger cost may have to wait longer.`,
		Example: `  sash peek --limit 9500/24h youtube --json`,
		Args:    exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter, _ *remote) error {
				if s.cost < 1 { // a cost that can never be admitted is an error, as in AllowN
					return fmt.Errorf("%w: %d units; a cost is at least 1", sash.ErrInvalidCost, s.cost)
				}
				for _, l := range limiter.Limits() {
					if s.cost > l.Units {
						return fmt.Errorf("%w: a cost of %d units can never fit into %s", sash.ErrCostAboveLimit, s.cost, l.Name)
					}
				}
				res, err := limiter.Peek(ctx, args[0])
				if err != nil {
					return err
				}
				return a.answer(s, wire.PeekOf(res, s.cost))
			})
		},
	}
	a.register(cmd, s)
	cmd.Flags().Int64VarP(&s.cost, "cost", "c", 1, "units that must have room")
	return cmd
}

func (a *app) reset() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "reset KEY",
		Short: "Forget what a key was charged",
		Long: `Forget everything that was charged to a key under one algorithm, and end its block. The limits make
no difference and may be left out.`,
		Example: `  sash reset youtube`,
		Args:    exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(s.limits) == 0 {
				s.limits = []string{"1/24h"} // a limiter has one
			}
			if s.resolution == 0 && s.algorithm == sash.SlidingBuckets {
				s.resolution = time.Second // the algorithm that needs one
			}
			return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter, _ *remote) error {
				if err := limiter.Reset(ctx, args[0]); err != nil {
					return err
				}
				return a.print(map[string]any{"reset": true, "key": args[0]}, func(t *output.Text) {
					t.Say("reset: nothing is charged to %q any more", args[0])
				})
			})
		},
	}
	a.register(cmd, s)
	return cmd
}

func (a *app) answer(s *subject, d wire.Decision) error {
	to := a.out
	if s.reserves && !d.Allowed && !a.json {
		to = a.err // token=$(sash reserve …) hides the other stream
	}
	err := output.Print(to, a.json, d, func(t *output.Text) { t.Say("%s", cmp.Or(d.Token, describe(d))) })
	if err == nil && !d.Allowed {
		return errFound
	}
	return err
}

func describe(d wire.Decision) string {
	var b strings.Builder
	if d.Allowed {
		fmt.Fprintf(&b, "allowed: %s left", units(*d.Remaining))
		if d.Waited != nil && *d.Waited > 0 {
			fmt.Fprintf(&b, " after waiting for %v", time.Duration(*d.Waited))
		}
	} else {
		wait := time.Duration(d.RetryAfter)
		fmt.Fprintf(&b, "refused by %s: %s left, retry after %v (at %s)", *d.RefusedBy, units(*d.Remaining),
			wait, time.Time(*d.At).Add(wait).UTC().Format(time.RFC3339Nano))
	}
	if len(d.Limits) > 1 {
		var left []string
		for _, l := range d.Limits {
			left = append(left, fmt.Sprintf("%d of %s", *l.Remaining, l.Name))
		}
		fmt.Fprintf(&b, " (%s)", strings.Join(left, ", "))
	}
	return b.String()
}
