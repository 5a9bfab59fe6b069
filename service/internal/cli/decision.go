package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/verdict"
)

const algorithmUsage = "how windows are counted: sliding-log, sorted-set-log, sliding-buckets, sliding-counter, fixed-window or gcra"

// subject is the flags of commands on one subject.
type subject struct {
	redis      string
	limits     []string
	algorithm  string
	resolution time.Duration
	prefix     string
	timeout    time.Duration
	cost       int64
	json       bool
}

func (s *subject) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.redis, "redis", "", redisUsage+" (default: the environment's "+redisVariable+")")
	f.StringArrayVarP(&s.limits, "limit", "l", nil, "a `limit` such as 9500/24h; repeat it for several, which all must have room")
	f.StringVar(&s.algorithm, "algorithm", sash.SlidingLog.String(), algorithmUsage)
	f.DurationVar(&s.resolution, "resolution", 0, "the step of sliding-buckets, such as 1s")
	f.StringVar(&s.prefix, "prefix", "", "what keeps this application's keys apart from those of others")
	f.DurationVar(&s.timeout, "timeout", 2*time.Second, "how long to wait for Redis")
	f.BoolVar(&s.json, "json", false, "answer in JSON")
}

// limiter makes the limiter that the flags describe.
func (s *subject) limiter(store sash.Store) (*sash.Limiter, error) {
	opts := &sash.Options{Prefix: s.prefix, Resolution: s.resolution}
	if err := opts.Algorithm.UnmarshalText([]byte(s.algorithm)); err != nil {
		return nil, err
	}
	limits := make([]sash.Limit, len(s.limits))
	for i, text := range s.limits {
		limit, err := sash.ParseLimit(text)
		if err != nil {
			return nil, err
		}
		limit.Name = text // as it was written
		limits[i] = limit
	}
	if len(limits) == 0 {
		return nil, errors.New("--limit is missing, such as --limit 9500/24h")
	}
	return sash.New(store, opts, limits...)
}

// on runs f on the limiter that the flags describe.
func (a *app) on(cmd *cobra.Command, s *subject, f func(context.Context, *sash.Limiter) error) error {
	if _, err := s.limiter(nowhere{}); err != nil { // what is wrong with the flags comes first
		return err
	}
	to, err := a.shared(s.redis)
	if err != nil {
		return err
	}
	defer to.close()
	limiter, err := s.limiter(to.store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
	defer cancel()
	if err = f(ctx, limiter); errors.Is(err, sash.ErrUnavailable) || ctx.Err() != nil {
		return to.explain(err)
	}
	return err
}

// nowhere is a store for flags that are only checked.
type nowhere struct{ sash.Store }

func (a *app) allow() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "allow --limit LIMIT KEY",
		Short: "Ask for units and charge them; exit 0 if allowed, 1 if refused",
		Long: `Ask for units for a key. When every limit has room the units are charged to all of them and the exit
code is 0. Otherwise nothing is charged, the exit code is 1, and the answer says how many units are
left and when the same call would be admitted. Anything else is exit code 2: no decision was made, or
it did not arrive. Then the call may have been charged, and is not allowed.

The key is used as it is. Keys that Go programs build with sash.Key, and those of sash serve, are their
parts joined by colons: demo:remote_address:192.0.2.7.`,
		Example: `  sash allow --redis redis://127.0.0.1:6379 --limit 9500/24h youtube --cost 100
  sash allow --limit 25/5s --limit 300/1m crm-api     # with SASH_REDIS set; both windows must have room`,
		Args: exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter) error {
				res, err := limiter.AllowN(ctx, args[0], s.cost)
				if err != nil {
					return err
				}
				return a.answer(s, verdict.Of(res))
			})
		},
	}
	s.register(cmd)
	cmd.Flags().Int64VarP(&s.cost, "cost", "c", 1, "the units to ask for")
	return cmd
}

func (a *app) peek() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "peek --limit LIMIT KEY",
		Short: "Look at what is left without charging; exit 0 if there is room, 1 if not",
		Long: `Look at what is left for a key, without charging anything. The exit code is 0 when the cost would be
admitted now, and 1 when it would not. The retry time is when the next units are released: exact for a
cost of 1; a larger cost may have to wait longer.`,
		Example: `  sash peek --limit 9500/24h youtube --json`,
		Args:    exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter) error {
				if err := checkCost(s.cost, limiter.Limits()); err != nil {
					return err
				}
				res, err := limiter.Peek(ctx, args[0])
				if err != nil {
					return err
				}
				return a.answer(s, verdict.Foresee(res, s.cost))
			})
		},
	}
	s.register(cmd)
	cmd.Flags().Int64VarP(&s.cost, "cost", "c", 1, "the units that there should be room for")
	return cmd
}

// checkCost refuses what could never be admitted, as asking for it would.
func checkCost(cost int64, limits []sash.Limit) error {
	if cost < 1 {
		return fmt.Errorf("%w: %d units; a cost is at least 1", sash.ErrInvalidCost, cost)
	}
	for _, l := range limits {
		if cost > l.Units {
			return fmt.Errorf("%w: a cost of %d units can never fit into %s", sash.ErrCostAboveLimit, cost, l.Name)
		}
	}
	return nil
}

func (a *app) reset() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "reset KEY",
		Short: "Forget what a key was charged with",
		Long: `Forget everything that a key was charged with under one algorithm. It does not matter which limits are
given, if any.`,
		Example: `  sash reset youtube`,
		Args:    exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(s.limits) == 0 {
				s.limits = []string{"1/24h"} // a limiter has one
			}
			if s.resolution == 0 && s.algorithm == sash.SlidingBuckets.String() {
				s.resolution = time.Second // and this algorithm has one
			}
			return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter) error {
				if err := limiter.Reset(ctx, args[0]); err != nil {
					return err
				}
				if s.json {
					return writeJSON(a.out, map[string]any{"reset": true, "key": args[0]})
				}
				_, err := fmt.Fprintf(a.out, "reset: nothing is charged to %q any more\n", args[0])
				return err
			})
		},
	}
	s.register(cmd)
	return cmd
}
