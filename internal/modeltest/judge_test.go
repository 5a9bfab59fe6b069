package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
)

// A bench is one build of the scripts under judgement, on an empty server.
type bench struct {
	server    string
	store     *redisstore.Store // on the clock
	clock     *judge.Clock
	scripts   *scripter
	plain     *redisstore.Store // on the clock, with keys that expire in real time
	algorithm sash.Algorithm
	t         testing.TB
	edit      func(name, text string) string
}

// newBench returns a build of the scripts with some text replaced.
func newBench(t testing.TB, server string, a sash.Algorithm, edit func(name, text string) string) *bench {
	b := &bench{server: server, algorithm: a, t: t, edit: edit}
	b.store, b.clock, b.scripts = virtual(t, server, edit)
	b.plain = redisstore.New(&scripter{client: b.scripts.client, clock: b.clock, edit: edit}, nil)
	check(b.scripts.client.FlushAll(t.Context()).Err())
	return b
}

// A part of a judge is a promise. Its check is fast and draws the same calls each time.
type part func(*bench) error

// parts are all that a judge checks, roughly from the fewest calls to the most.
var parts = []part{
	(*bench).quiet, (*bench).midnight, (*bench).reset, (*bench).moved, (*bench).lives, (*bench).repeated, (*bench).long,
	(*bench).cooled, (*bench).edged, (*bench).firm, (*bench).broughtForward, (*bench).given,
	(*bench).gathered, (*bench).walks, (*bench).chosen, (*bench).blocked, (*bench).gapped, (*bench).counted, (*bench).booked, (*bench).settled, (*bench).merged, (*bench).held,
}

// judgeBuild returns an error when a build of the scripts breaks one of these promises. Each part gets a bench of its own, so that
// it finds the same whichever others are checked.
func judgeBuild(t testing.TB, server string, a sash.Algorithm, edit func(name, text string) string, parts []part) (err error) {
	defer caught(&err)
	for _, part := range parts {
		check(part(newBench(t, server, a, edit)))
	}
	return nil
}

// A mistake is an error with which check ends a walk or a part of a judge. Whoever runs it gets the error by caught. It ends a test
// that does not, as its panic.
type mistake struct{ err error }

func (m mistake) String() string { return m.err.Error() }

func check(err error) {
	if err != nil {
		panic(mistake{err})
	}
}

// must returns a value, and ends what check ends if there is an error.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// caught is for defer, and returns the error that has ended a function.
func caught(err *error) {
	switch failed := recover().(type) {
	case nil:
	case mistake:
		*err = failed.err
	default:
		panic(failed)
	}
}

// books reports whether the store books under the algorithm.
func (b *bench) books() bool {
	return b.algorithm == sash.SlidingLog || b.algorithm == sash.SlidingBuckets
}

func (b *bench) policy(limits ...sash.Limit) *driver.Policy {
	return newPolicy(b.t, options(b.algorithm), limits...)
}

func (b *bench) request(key string, cost int64, limits ...sash.Limit) driver.Request {
	return driver.Request{Key: key, Cost: cost, Policy: b.policy(limits...)}
}

// quiet: refusals and peeks write nothing, also when old charges could be cleared away.
func (b *bench) quiet() error {
	ctx := context.Background()
	charge := b.request("quiet", 2, sash.Every(10, 10*time.Second), sash.Every(12, 100*time.Second))
	for range 6 {
		must(drivertest.Of(b.plain).Decide(ctx, charge))
		b.clock.Advance(11 * time.Second)
	}
	refused, peek := charge, charge
	refused.Cost, peek.Cost = 10, 0
	for _, silence := range []time.Duration{0, 60 * time.Second, 70 * time.Second} {
		b.clock.Advance(silence)
		for _, req := range []driver.Request{refused, peek} {
			before := must(b.changes())
			res := must(drivertest.Of(b.plain).Decide(ctx, req))
			if req.Cost > 0 && res.Allowed() {
				continue
			}
			if after, err := b.changes(); err != nil || after != before {
				return fmt.Errorf("a call of cost %d that charges nothing wrote: %s changes, before %s (%v)", req.Cost, after, before, err)
			}
		}
	}
	return nil
}

func (b *bench) changes() (string, error) {
	return b.scripts.client.Eval(context.Background(),
		"return string.match(redis.call('INFO', 'persistence'), 'rdb_changes_since_last_save:(%d+)')", nil).Text()
}

// lives: a key has an expiry after every call and lives as long as its charges.
func (b *bench) lives() error {
	ctx := context.Background()
	for i, window := range []time.Duration{400 * time.Millisecond, 1900 * time.Millisecond, 10 * time.Second, 10*time.Second + 999*time.Millisecond} {
		req := b.request(fmt.Sprint("lives", i), 3, sash.Every(30, window))
		began, at := time.Now(), b.clock.Now()
		for range 3 {
			asked := time.Now()
			res := must(drivertest.Of(b.plain).Decide(ctx, req))
			left := must(b.scripts.client.PTTL(ctx, b.plain.Key(req.Key, req.Policy)).Result())
			// The key expires in real time, of which more may have passed than on the clock since its first call.
			passed := max(time.Since(asked), time.Since(began)-b.clock.Now().Sub(at))
			if left == -1 {
				return fmt.Errorf("a key has no expiry")
			}
			reset := time.Duration(res.Statuses()[0].Reset) * time.Microsecond
			if passed < reset && left+passed+2*time.Millisecond < reset {
				return fmt.Errorf("a key lives for %v, and its last charge leaves after %v", left, reset)
			}
			b.clock.Advance(window / 20)
		}
	}
	return nil
}

// walks: random calls answer by the definition.
func (b *bench) walks() error {
	defer func() { b.scripts.skew = nil }()
	for seed := range uint64(36) { // the last 6 on a clock that also goes back by little
		rng := rand.New(rand.NewPCG(seed, 3))
		b.scripts.skew = func() time.Duration { return time.Duration(rng.IntN(120)-60) * time.Hour / 2 }
		err := randomCalls(setup{
			store: b.store, clock: b.clock, algorithm: b.algorithm, steps: 60, prefix: fmt.Sprint("walk", seed, ":"), choose: rng.IntN, little: seed >= 30,
		})
		if err != nil {
			return fmt.Errorf("walk %d: %w", seed, err)
		}
	}
	return nil
}

// random makes random calls, in so many walks.
func (b *bench) random(name string, walks int, stream uint64, s setup) error {
	s.store, s.clock, s.algorithm = b.store, b.clock, b.algorithm
	for seed := range uint64(walks) {
		s.prefix, s.choose = fmt.Sprint(name, seed, ":"), rand.New(rand.NewPCG(seed, stream)).IntN
		if err := randomCalls(s); err != nil {
			return fmt.Errorf("%s %d: %w", name, seed, err)
		}
	}
	return nil
}

// gathered: random calls on several subjects in one round trip answer by the definition, and a key that holds something
// else fails only its own request.
func (b *bench) gathered() error {
	check(b.random("gathered", 20, 5, setup{usual: many, steps: 60}))
	var reqs []driver.Request
	for i := range 3 {
		req := b.request(fmt.Sprint("gathered", i), 1, sash.PerHour(10))
		reqs = append(reqs, req)
	}
	if _, ok := b.plain.Gathers(plain(reqs[0])); !ok {
		return nil
	}
	ctx := context.Background()
	check(b.scripts.client.LPush(ctx, b.plain.Key(reqs[1].Key, reqs[1].Policy), "x").Err())
	ops, err := drivertest.Of(b.plain).Each(ctx, reqs...)
	if bad := ops[1].Err; err != nil || !errors.Is(bad, driver.ErrRejected) || redisstore.Uncharged(bad) {
		return fmt.Errorf("a list under the key of a log: %w", errors.Join(err, bad))
	}
	for _, i := range []int{0, 2} {
		if op := &ops[i]; op.Err != nil || op.Answer.Remaining() != 9 {
			return fmt.Errorf("beside a key that holds something else %d remain: %w", op.Answer.Remaining(), op.Err)
		}
	}
	return nil
}

// chosen: random choices answer by the definition.
func (b *bench) chosen() error {
	check(b.random("chosen", 20, 4, setup{usual: choices, steps: 80}))
	reqs := make([]driver.Request, driver.ChoiceGroup+2) // of which the first group is full
	for i := range reqs {
		req := b.request(fmt.Sprint("chosen", i), 1, sash.Every(1, 10*time.Second))
		if reqs[i] = req; i < driver.ChoiceGroup {
			must(drivertest.Of(b.store).Decide(context.Background(), req))
		}
	}
	i, answer, err := drivertest.Of(b.store).Any(context.Background(), reqs...)
	if err != nil || i != driver.ChoiceGroup || !answer.Allowed() {
		return fmt.Errorf("behind a full group subject %d is chosen: allowed %v, %w", i, answer.Allowed(), err)
	}
	return nil
}

// long: a subject that never rests for long keeps its charges, although its key's expiry passes again and again.
func (b *bench) long() error {
	s, rng := b.scenario(sash.Every(30, 20*time.Second)), rand.New(rand.NewPCG(150, 7))
	for range 150 {
		s.calls(1, time.Duration(rng.IntN(8_000_000))*time.Microsecond)
	}
	return s.err
}

// The judge accepts the scripts, and rejects each of them with a mistake.
func TestEveryMutantIsCaught(t *testing.T) {
	server := redistest.Start(t).Addr()
	texts := make(map[string]string)
	for _, s := range redisstore.Scripts() {
		texts[s.Name] = s.Text
	}
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			running := accepted(t, server, a)
			for _, group := range mutants {
				if group.algorithm != a {
					continue
				}
				for _, m := range group.mutants {
					m.old, m.new = threshold.Scripts.Put(m.old), threshold.Scripts.Put(m.new)
					t.Run(group.script+"/"+m.name, func(t *testing.T) {
						if n := strings.Count(texts[group.script], m.old); n != 1 {
							t.Fatalf("the script has the text %q %d times: the mutant has to follow the script", m.old, n)
						}
						err := judgeBuild(t, server, a, func(name, text string) string {
							if name == group.script {
								return strings.Replace(text, m.old, m.new, 1)
							}
							return text
						}, running[group.script])
						if err == nil {
							t.Fatal("nothing was found wrong with it")
						}
						what, _, _ := strings.Cut(err.Error(), "\n")
						t.Log(what)
					})
				}
			}
		})
	}
}

// accepted shows that the judge accepts the scripts, and returns the parts that run each script. No other part can find a mistake in it.
func accepted(t *testing.T, server string, a sash.Algorithm) map[string][]part {
	t.Helper()
	running := make(map[string][]part)
	for _, check := range parts {
		ran := make(map[string]bool)
		see := func(name, text string) string {
			ran[name] = true
			return text
		}
		if err := judgeBuild(t, server, a, see, []part{check}); err != nil {
			t.Fatal(err)
		}
		for name := range ran {
			running[name] = append(running[name], check)
		}
	}
	return running
}
