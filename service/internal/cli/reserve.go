package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/wire"
)

func (a *app) reserve() *cobra.Command {
	return a.charging(true, &cobra.Command{
		Use:   "reserve --limit LIMIT KEY [AND --limit LIMIT KEY]...",
		Short: "Charge an estimate and print a token, with which sash settle corrects it",
		Long: `Charge an estimate of what a call will use, and print a token for sash settle. All flags, AND and
the exit codes are those of sash allow, but a refusal is written to standard error. An estimate that
is not settled stays charged until it leaves its window.

The token is one word of a few hundred characters. It is not secret, but has the key and the limits.`,
		Example: `  token=$(sash reserve --limit 100000/1m openai --cost 4000) || exit
  used=$(ask-model | jq .usage.total_tokens)
  sash settle "$token" "$used"

  token=$(sash reserve --limit 100000/1m tokens --cost 4000 AND --limit 500/1m requests) || exit
  sash settle "$token" "$used" 1   # the units of each key; a single 0 gives all of them back`,
	})
}

// charging adds the flags of a charge to a command, and the function that runs it. With reserves, the answer is a token.
func (a *app) charging(reserves bool, cmd *cobra.Command) *cobra.Command {
	s, f := &subject{reserves: reserves}, cmd.Flags()
	a.register(cmd, s)
	f.Int64VarP(&s.cost, "cost", "c", 1, "units to request")
	f.DurationVarP(&s.wait, "wait", "w", 0, "how long to wait for room, up to 24h")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.wait < 0 || s.wait > sash.MaxAhead {
			return fmt.Errorf("--wait %v: give how long the command can wait, up to %v", s.wait, sash.MaxAhead)
		}
		parts, err := s.parts(cmd, a.args)
		if err != nil {
			return err
		}
		return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter, to *remote) error {
			if reserves || s.wait != 0 {
				return a.hold(cmd.Context(), s, limiter, parts, to)
			}
			res, err := limiter.AllowAll(ctx, parts...)
			if err != nil {
				return err
			}
			return a.answer(s, wire.ResultOf(res))
		})
	}
	return cmd
}

// parts parses the command line again, part by part. AND separates the parts; each has one key, limits and a
// cost. Other flags may be in any part. With several keys, the name of a limit begins with its key.
func (s *subject) parts(cmd *cobra.Command, line []string) (all []sash.Subject, err error) {
	for more := true; more; {
		part, i := line, slices.Index(line, "AND")
		if more = i >= 0 && !slices.Contains(line[:i], "--"); more {
			part, line = line[:i], line[i+1:]
		}
		s.limits, s.cost = nil, 1
		if err := cmd.Flags().Parse(part); err != nil {
			return nil, cmd.FlagErrorFunc()(cmd, err)
		}
		keys := cmd.Flags().Args()
		if len(all) == 0 && len(keys) > 0 {
			keys = keys[1:] // the first word is the command
		}
		if err := exactly("a KEY")(cmd, keys); err != nil {
			return nil, err
		}
		limits, err := s.own()
		if err != nil {
			return nil, err
		}
		for i := range limits {
			if more || len(all) > 0 {
				limits[i].Name = output.Printable(keys[0]) + " " + limits[i].Name
			}
		}
		all = append(all, sash.Subject{Key: keys[0], Cost: s.cost, Limits: limits})
	}
	return all, nil
}

// hold makes a reservation, waits until it starts, and prints the answer. If ctx ends while Redis decides, hold
// still waits for the answer, so that it can give the charge back.
func (a *app) hold(ctx context.Context, s *subject, limiter *sash.Limiter, parts []sash.Subject, to *remote) error {
	decision, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	r, err := limiter.Reserve(decision, parts[0].Key, parts[0].Cost, &sash.ReserveOptions{WaitUpTo: s.wait, Limits: parts[0].Limits, All: parts[1:]})
	if err != nil {
		return err
	}
	d := wire.ResultOf(r.Result())
	if !d.Allowed {
		return a.answer(s, d)
	}
	delay := wire.Seconds(r.StartsIn())
	if err := r.Wait(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil { // it may have started already
		_ = r.Release(ctx)
		return ctx.Err()
	}
	if s.wait > 0 {
		d.Waited = &delay
	}
	if s.reserves {
		held := make([]decide.Reservation, len(parts))
		for i, part := range parts {
			res := r.Parts[i].Result()
			policy, _ := sash.NewPolicy(&sash.Options{Algorithm: s.algorithm, Resolution: s.resolution}, part.Limits...) // Reserve has checked them
			held[i] = decide.Reservation{Key: s.full(part.Key), Units: part.Cost, At: res.At, Delay: res.Delay, Policy: policy, ID: rand.Text()}
		}
		d.Token = to.tokens().Seal(held...)
	}
	if err = a.answer(s, d); err != nil { // nobody has the answer, and perhaps its token
		_ = r.Release(ctx)
	}
	return err
}

// tokens returns what seals and opens reservations on this Redis. The key is not secret, because settling needs
// access to Redis anyway. It detects a token that was changed or that belongs to another Redis.
func (r *remote) tokens() *wire.Tokens {
	return wire.NewTokens(fmt.Appendf(nil, "%s %d %s", r.client, r.client.Database(), r.prefix))
}

func (a *app) settle() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "settle TOKEN USED...",
		Short: "Correct a reservation to the units that were used, or give it back",
		Long: `Correct the charge of sash reserve to the units that were used: fewer, more, or 0 to give all of it
back. Units beyond the estimate are charged even without room. For several keys give the units of
each, in order, or a single 0.

The first settlement counts, and later ones change nothing, so a command that failed can be
repeated. Give --redis the address that sash reserve had, written the same way.`,
		Example: `  sash settle "$token" 3120
  sash settle "$token" 0`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("%d arguments instead of a TOKEN and the units USED (see %s --help)", len(args), cmd.CommandPath())
			}
			used, err := wire.ParseUsed(args[1:])
			if err != nil {
				return err
			}
			to, err := a.shared()
			if err != nil {
				return err
			}
			defer to.client.Close()
			engine, err := decide.New(&config.Config{}, func(config.Place) (driver.Store, error) { return to.store, nil })
			if err == nil {
				err = to.tokens().Settle(cmd.Context(), engine, args[0], used, func(string) error { return nil })
			}
			switch {
			case errors.Is(err, wire.ErrToken):
				return fmt.Errorf("the TOKEN is not one of sash reserve for redis at %s, or was changed: give both commands the same --redis", to.client)
			case errors.Is(err, sash.ErrUnavailable):
				return to.explain(err)
			case err != nil:
				return err
			}
			return a.print(map[string]bool{"settled": true}, func(t *output.Text) { t.Say("settled") })
		},
	}
	a.redisFlag(cmd.Flags())
	a.jsonFlag(cmd.Flags())
	return cmd
}
