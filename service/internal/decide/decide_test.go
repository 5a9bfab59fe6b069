package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// a clock that the test moves.
type clock struct{ now time.Time }

func (c *clock) move(d time.Duration) { c.now = c.now.Add(d) }

func decider(t *testing.T, text string) (*Decider, *clock) {
	t.Helper()
	c := &clock{time.Unix(1_800_000_000, 0)}
	return deciderOn(t, text, memstore.New(&memstore.Options{Now: func() time.Time { return c.now }})), c
}

func deciderOn(t testing.TB, text string, store driver.Store) *Decider {
	t.Helper()
	return newDecider(t, parse(t, text), store)
}

// part reads "key=value key=value" and the units.
func part(text string, units int64) Part {
	p := Part{Cost: units}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		p.Entries = append(p.Entries, config.Entry{Key: key, Value: value})
	}
	return p
}

// ask returns which parts were refused and what is left of each: "ok:4 | OVER:0".
func ask(t *testing.T, d *Decider, parts ...Part) string {
	t.Helper()
	answers := must(d.Decide(t.Context(), Request{Domain: "d", Parts: parts, Lenient: true}))(t)
	var words []string
	for _, a := range answers {
		word := "ok"
		if a.Refused {
			word = "OVER"
		}
		if len(a.Limits) > 0 {
			word += fmt.Sprint(":", a.Limits[0].Remaining)
		}
		words = append(words, word)
	}
	return strings.Join(words, " | ")
}

func one(ctx context.Context, d *Decider, req Request) (Answer, error) {
	answers, err := d.Decide(ctx, req)
	if err != nil {
		return Answer{}, err
	}
	return answers[0], nil
}

func peekOne(ctx context.Context, d *Decider, req Request) (Answer, error) {
	answers, err := d.Peek(ctx, req)
	return answers[0], err
}

func named(id string, req Request) Request {
	req.ID = id
	return req
}

func remaining(a Answer) int64 {
	tightest, _ := a.Tightest()
	return tightest.Remaining
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

const several = `
domain: d
descriptors:
- {key: a, limits: [5/1m]}
- {key: b, limits: [2/1m]}
- {key: c, limits: [9/1h], algorithm: fixed-window}
- {key: big, limits: [1000000/1m]}
- {key: never, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: shadow, limits: [1/1m], shadow_mode: true}
- {key: quota, limits: [1/1m], quota_mode: true}
- {key: free, rate_limit: {unlimited: true}}
- {key: small, rate_limit: {unit: minute, requests_per_unit: 1, name: small}}
- {key: large, rate_limit: {unit: minute, requests_per_unit: 100, replaces: [{name: small}]}}
`

func TestTheSameSubjectTwice(t *testing.T) {
	d, _ := decider(t, several)
	want(t, "both are charged", ask(t, d, part("a", 2), part("a", 2)), "ok:1 | ok:1")
	want(t, "both or none", ask(t, d, part("a", 1), part("a", 1)), "OVER:1 | OVER:1")
	want(t, "together too many for ever", ask(t, d, part("b", 2), part("b", 2)), "OVER:2 | OVER:2")
}

func TestAReplacedRuleDoesNotCount(t *testing.T) {
	d, _ := decider(t, several)
	want(t, "both", ask(t, d, part("small", 1), part("large", 1)), "ok | ok:99")
	want(t, "again", ask(t, d, part("large", 1), part("small", 1)), "ok:98 | ok")
	want(t, "alone", ask(t, d, part("small", 1)), "ok:0")
}

func TestALimitOfTheRequest(t *testing.T) {
	d, c := decider(t, several)
	brings := func(units int64, window time.Duration) Part {
		limit := sash.Every(units, window)
		p := part("x=1", 1)
		p.RequestLimit = &limit
		return p
	}
	want(t, "first", ask(t, d, brings(2, time.Minute)), "ok:1")
	want(t, "second", ask(t, d, brings(2, time.Minute)), "ok:0")
	want(t, "third", ask(t, d, brings(2, time.Minute)), "OVER:0")
	want(t, "raised", ask(t, d, brings(3, time.Minute)), "ok:0")
	want(t, "no units", ask(t, d, brings(0, time.Minute)), "OVER:0")
	c.move(time.Minute)
	want(t, "slid out", ask(t, d, brings(2, time.Minute)), "ok:1")
	want(t, "large", ask(t, d, brings(4_294_967_295, time.Second)), "ok:4294967293")
	if _, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{brings(1, 500*24*time.Hour)}, Lenient: true}); !errors.Is(err, sash.ErrInvalidLimit) {
		t.Errorf("a window that is too long: %v", err)
	}
}

// The units that Envoy reports at the end of a stream were used already; the next stream begins with a look.
func TestRefusalsThatCountAreSeenByTheNextLook(t *testing.T) {
	const text = "domain: d\ndescriptors:\n- {key: tokens, limits: [100/1h], count_refused: true}\n- {key: a, limits: [5/1m]}\n"
	d, c := decider(t, text)
	want(t, "used", ask(t, d, part("tokens", 60)), "ok:40")
	want(t, "a look", ask(t, d, part("tokens", 0), part("a", 1)), "ok:40 | ok:4")
	want(t, "more than is left", ask(t, d, part("tokens", 60)), "OVER:0")
	want(t, "a look", ask(t, d, part("tokens", 0), part("a", 1)), "OVER:0 | ok:4")
	c.move(time.Hour)
	want(t, "more than there ever is", ask(t, d, part("tokens", 1000)), "OVER:0")
	want(t, "any more", ask(t, d, part("tokens", 1)), "OVER:0")
	want(t, "a look", ask(t, d, part("tokens", 0)), "OVER:0")
	c.move(time.Hour)
	want(t, "it slides out", ask(t, d, part("tokens", 0)), "ok:100")
}

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	return must(config.Parse(config.Defaults{}, false, config.File{Name: "x.yaml", Text: []byte(text)}))(t)
}

func use(t *testing.T, d *Decider, text string) {
	t.Helper()
	check(t, d.Use(parse(t, text)))
}

func newDecider(t testing.TB, cfg *config.Config, store driver.Store) *Decider {
	t.Helper()
	return must(New(cfg, func(config.Place) (driver.Store, error) { return store, nil }))(t)
}

func allowed(t *testing.T, d *Decider, req Request) bool {
	t.Helper()
	req.Domain, req.Lenient = "d", true
	answers := must(d.Decide(t.Context(), req))(t)
	return !slices.ContainsFunc(answers, func(a Answer) bool { return !a.Allowed() })
}

// A broken store does not answer for keys with a prefix.
type broken struct {
	*memstore.Store
	prefix string
	asked  int // for such keys
}

func (b *broken) Do(ctx context.Context, batch *driver.Batch) error {
	for i := range batch.Ops {
		if op := &batch.Ops[i]; op.Kind == driver.Charge && strings.HasPrefix(op.Key, b.prefix) {
			b.asked++
			return errors.New("connection refused")
		}
	}
	return b.Store.Do(ctx, batch)
}

// substituted answers for a store by failure modes, as one of two instances.
func substituted(t *testing.T, store driver.Store) *failover.Store {
	t.Helper()
	return must(failover.New(store, &failover.Options{Local: memstore.New(nil), Instances: func() int { return 2 }}))(t)
}

// alone returns the decider of an instance whose store never answers.
func alone(t *testing.T, text string) *Decider {
	t.Helper()
	return deciderOn(t, text, substituted(t, &broken{Store: memstore.New(nil)}))
}

// While the configuration and the exceptions change, requests are held to one or the other, and no subject gets more than
// the widest of them.
func TestRequestsWhileEverythingChanges(t *testing.T) {
	configs := []*config.Config{
		parse(t, "domain: d\ndescriptors:\n  - {key: k, limits: [20/1h]}\n"),
		parse(t, "domain: d\ndescriptors:\n  - {key: k, limits: [30/1h], candidate: {limits: [5/1h], enforce_percent: 50}}\n"),
		parse(t, "domain: d\ndescriptors:\n  - {key: other, limits: [1/1h]}\n  - {key: k, limits: [25/1h], shadow_mode: false}\n"),
	}
	d := newDecider(t, configs[0], memstore.New(nil))
	entries := []config.Entry{{Key: "k", Value: "ann"}}
	ctx, stop := context.WithCancel(t.Context())
	var changers, askers sync.WaitGroup
	changers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := d.Use(configs[i%len(configs)]); err != nil {
				t.Error(err)
			}
		}
	})
	changers.Go(func() {
		override := Exception{Domain: "d", Entries: entries, Limits: []sash.Limit{sash.PerHour(40)}, Until: time.Now().Add(time.Hour)}
		ban := Exception{Domain: "d", Entries: entries, Until: time.Now().Add(time.Hour)}
		for i := 0; ctx.Err() == nil; i++ {
			d.Except([][]Exception{nil, {override}, {ban}, {override, ban}}[i%4])
		}
	})
	var admitted atomic.Int64
	for range 4 {
		askers.Go(func() {
			for range 400 {
				v, err := one(t.Context(), d, One("d", entries, nil))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := d.State(t.Context(), "d", entries); err != nil {
					t.Error(err)
				}
				if v.Allowed() {
					admitted.Add(1)
				}
			}
		})
	}
	askers.Wait()
	stop()
	changers.Wait()
	if n := admitted.Load(); n > 40 || n == 0 {
		t.Errorf("%d are admitted, and no limit had more than 40", n)
	}
}

// check fails the test at once after an error. Package servertest, which has it too, needs this one.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns a function that returns the value, or fails the test at once after an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return value
	}
}
