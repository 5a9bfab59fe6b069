package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A script is a case in lines, which begin a multiple of 8 hours after the epoch:
//
//	[3x] [+10s] [name =] verb arguments [under limits]: what the result is
//
// A line is repeated if a count comes first, and before it the clock is moved. The verbs are those of a limiter:
//
//	allow key units          charge, which is expected to be admitted: "no" expects a refusal
//	peek key                 charge nothing
//	once id key units        charge once for all calls with the ID
//	upto key units           charge as much as fits
//	penalize, reward key n   charge or give back
//	all, any key:units ...   several subjects at once, or the one with most room
//	reserve key units        charge what can be settled and extended
//	book duration key units  the same, and start within a time
//	bookonce, bookall        a booking with an ID, or of several subjects
//	settle name units [id]   correct a charge, by the name of its result
//	extend name [id]         make a charge count from now, or "gone", also for a booking without room
//	reset key                forget a subject
//	cool, guess key length   begin a cool-down, by a server's answer or by a guess
//	cooling key              look at it
//	clock                    only move the clock
//
// The limits are those of the case unless a line has others. Every retry time of a refusal is above zero. The instant of
// every admission is the clock's time plus the delay.
type script struct {
	*suite
	options sash.Options
	limits  string
	results map[string]*scripted // by name
}

// A scripted is the result of a line, with the charges that may be settled.
type scripted struct {
	sash.Result
	cooled driver.CoolDown
	chosen int
	sets   []driver.Settlement // of each subject
	gone   bool
}

func scriptOf(name, promise string, only func(sash.Algorithm) bool, limits, lines string, opts ...sash.Options) testCase {
	return testCase{name, promise, only, func(s *suite) {
		s.align(8 * time.Hour)
		r := newScript(s, limits)
		for _, o := range opts {
			r.options.CountRefused, r.options.Block = o.CountRefused, o.Block
		}
		r.supports(lines)
		for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
			r.line(strings.TrimSpace(line))
		}
	}}
}

func newScript(s *suite, limits string) *script {
	return &script{suite: s, options: *options(s.algorithm), limits: limits, results: make(map[string]*scripted)}
}

// powers are what a store needs for a verb.
var powers = map[string]driver.Powers{
	"settle": driver.CanSettle, "reserve": driver.CanSettle, "once": driver.CanID, "reset": driver.CanForget,
	"all": driver.CanAll, "any": driver.CanAny, "upto": driver.CanTake, "penalize": driver.CanTake,
	"reward": driver.CanTake, "extend": driver.CanExtend, "cool": driver.CanCool, "guess": driver.CanCool,
	"cooling": driver.CanCool, "book": driver.CanSettle, "bookonce": driver.CanID, "bookall": driver.CanAll,
}

func (r *script) can(verb string) bool {
	has := r.Store.Powers()
	return has&powers[verb] == powers[verb] &&
		(!strings.HasPrefix(verb, "book") || has&driver.CanBook != 0 && r.under(r.limits).Policy().Bookable())
}

func (r *script) supports(lines string) {
	for _, word := range strings.Fields(lines) {
		if !r.can(strings.TrimSuffix(word, ":")) {
			r.Skip("the store does not have the power, or does not book under this algorithm")
		}
	}
	if r.options.Block != (sash.Block{}) && r.Store.Powers()&driver.CanBlock == 0 {
		if _, err := sash.New(r.Store, &r.options, sash.Every(1, window)); !errors.Is(err, sash.ErrUnsupported) {
			r.broken("a limiter with a block on a store that keeps none: %v", err)
		}
		r.Skip("the store keeps no blocks")
	}
}

func (r *script) under(limits string) *sash.Limiter {
	r.Helper()
	var all []sash.Limit
	for _, text := range strings.Fields(limits) {
		l, err := sash.ParseLimit(text)
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, l)
	}
	return r.limiterWith(&r.options, all...)
}

func (r *script) line(line string) {
	r.Helper()
	call, want, _ := strings.Cut(line, ": ")
	words, times := strings.Fields(call), 1
	if n, ok := strings.CutSuffix(words[0], "x"); ok {
		times, words = int(number(r, n)), words[1:]
	}
	for range times {
		rest := words
		if d, err := time.ParseDuration(rest[0]); err == nil {
			r.Advance(d)
			rest = rest[1:]
		}
		name := ""
		if len(rest) > 1 && rest[1] == "=" {
			name, rest = rest[0], rest[2:]
		}
		got := r.call(rest, line)
		if name != "" {
			r.results[name] = got
		}
		r.check(rest[0], got, strings.Fields(want), line)
	}
}

func (r *script) call(words []string, line string) *scripted {
	r.Helper()
	verb, args, limits := words[0], words[1:], r.limits
	if i := strings.Index(" "+strings.Join(args, " "), " under "); i >= 0 {
		before, after, _ := strings.Cut(strings.Join(args, " "), "under ")
		args, limits = strings.Fields(before), after
	}
	l, ctx := r.under(limits), r.Context()
	units := func(i int) int64 { return number(r, args[i]) }
	got := &scripted{}
	var hold *sash.Reservation
	var holds []*sash.Reservation
	var held []sash.Subject
	var err error
	switch verb {
	case "clock":
	case "allow":
		got.Result, err = l.AllowN(ctx, args[0], units(1))
	case "peek":
		got.Result, err = l.Peek(ctx, args[0])
	case "once":
		got.Result, err = l.AllowOnce(ctx, args[0], args[1], units(2))
	case "upto":
		got.Result, err = l.AllowUpTo(ctx, args[0], units(1))
	case "penalize":
		got.Result, err = l.Penalize(ctx, args[0], units(1))
	case "reward":
		got.Result, err = l.Reward(ctx, args[0], units(1))
	case "all":
		got.Result, err = l.AllowAll(ctx, r.subjects(args)...)
	case "any":
		got.chosen, got.Result, err = l.AllowAny(ctx, r.subjects(args)...)
	case "reserve":
		hold, err = l.Reserve(ctx, args[0], units(1), nil)
		held = []sash.Subject{{Key: args[0], Cost: units(1)}}
	case "book":
		hold, err = l.Reserve(ctx, args[1], units(2), &sash.ReserveOptions{WaitUpTo: r.duration(args[0])})
		held = []sash.Subject{{Key: args[1], Cost: units(2)}}
	case "bookonce":
		hold, err = l.Reserve(ctx, args[2], units(3), &sash.ReserveOptions{WaitUpTo: r.duration(args[0]), ID: args[1]})
	case "bookall":
		held = r.subjects(args[1:])
		hold, err = l.Reserve(ctx, held[0].Key, held[0].Cost, &sash.ReserveOptions{WaitUpTo: r.duration(args[0]), All: held[1:]})
	case "settle":
		set := r.results[args[0]].sets[0]
		if set.Units = units(1); len(args) > 2 {
			set.ID = args[2]
		}
		_, err = r.do(driver.Op{Kind: driver.Settle, Settlement: set})
	case "extend":
		sets := r.results[args[0]].sets
		var ops []driver.Op
		for _, set := range sets {
			if len(args) > 1 {
				set.ID = args[1]
			}
			ops = append(ops, driver.Op{Kind: driver.Extend, Settlement: set})
		}
		ops, err = r.do(ops...)
		at := ops[0].Answer.At
		if got.gone = at == 0; !got.gone {
			got.At = time.UnixMicro(at)
			for i := range sets {
				sets[i].At, sets[i].Delay = at, 0
			}
		}
	case "reset":
		err = l.Reset(ctx, args[0])
	case "cool", "guess":
		begin := driver.CoolDown{Length: r.duration(args[1]).Microseconds(), Guessed: verb == "guess"}
		got.cooled, err = r.cool(args[0], begin)
	case "cooling":
		got.cooled, err = r.cool(args[0], driver.CoolDown{})
	default:
		r.Fatalf("%s: there is no verb %s", line, verb)
	}
	if err != nil {
		r.Fatalf("%s: %v", line, err)
	}
	if hold != nil {
		got.Result, holds = hold.Result(), hold.Parts
	}
	for i, hold := range holds {
		if i < len(held) {
			req := driver.Request{Key: held[i].Key, Cost: held[i].Cost, Policy: l.Policy(), MaySettle: true}
			got.sets = append(got.sets, driver.Settlement{
				Request: req, At: got.At.UnixMicro(), Delay: got.Delay.Microseconds(), Source: hold.Result().Source,
			})
		}
	}
	return got
}

func (r *script) subjects(args []string) (all []sash.Subject) {
	for _, a := range args {
		key, cost, _ := strings.Cut(a, ":")
		all = append(all, sash.Subject{Key: key, Cost: number(r, cost)})
	}
	return all
}

// check compares a result with what a line expects. A line may say "no" for a refusal, "blocked", "guessed" and "gone". It
// may give left, retry, reset, delay and charged of the result, length and ends of a cool-down, and the key or limit that
// refuses with "by". It may name the subject "chosen", and with "as" an earlier result at the same instant.
func (r *script) check(verb string, got *scripted, want []string, line string) {
	r.Helper()
	expect := func(what string, got, want any) {
		r.Helper()
		if got != want {
			r.broken("%s\n%s is %v, want %v", line, what, got, want)
		}
	}
	numbers := map[string]int64{"left": got.Remaining, "charged": got.Charged, "chosen": int64(got.chosen)}
	durations := map[string]time.Duration{
		"retry": got.RetryAfter, "reset": got.ResetAfter, "delay": got.Delay,
		"length": time.Duration(got.cooled.Length) * time.Microsecond, "ends": time.Duration(got.cooled.Left) * time.Microsecond,
	}
	flags, at := map[string]bool{}, r.Now().Add(got.Delay)
	for len(want) > 0 {
		word := want[0]
		switch word {
		case "no", "blocked", "guessed", "gone":
			flags[word], want = true, want[1:]
			continue
		case "by":
			if by, _ := got.RefusedBy(); by.Key != want[1] {
				expect(word, by.Limit.String(), want[1])
			}
		case "as":
			at = r.results[want[1]].At
		default:
			if n, ok := numbers[word]; ok {
				expect(word, n, number(r, want[1]))
			} else if d, ok := durations[word]; ok {
				expect(word, d, r.duration(want[1]))
			} else {
				r.Fatalf("%s: nothing is called %s", line, word)
			}
		}
		want = want[2:]
	}
	expect("gone", got.gone, flags["gone"])
	expect("guessed", got.cooled.Guessed, flags["guessed"])
	switch verb {
	case "allow", "once", "upto", "all", "any", "reserve", "book", "bookonce", "bookall":
		expect("whether it is admitted", got.Allowed, !flags["no"])
		expect("whether it has to wait", got.RetryAfter > 0, flags["no"])
		if late := got.At.Sub(at); got.Allowed && late != 0 && late != time.Microsecond { // not the instant of a reset
			expect("its instant", got.At, at)
		}
		fallthrough
	case "peek":
		expect("whether it is blocked", got.Blocked, flags["blocked"])
	}
}

func (r *script) duration(s string) time.Duration {
	r.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		r.Fatal(err)
	}
	return d
}

func number(r *script, s string) int64 {
	r.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// randomLines are what random calls are drawn from: K is a key, and N a number of units.
var randomLines = []string{
	"allow K N", "allow K N", "peek K", "once idN K 2", "once idN K 2", "upto K N", "penalize K N", "reward K N",
	"all Ka:1 Kb:N", "bookall 20s {t}Ka:1 {t}Kb:N", "allow {t}K N", "reserve K N", "reserve K N", "settle 0", "settle N", "extend", "book Ns K N", "book 1h K 2", "book 20s K N",
	"bookonce 20s idN K 1", "cool K Ns", "guess K Ns", "cooling K", "reset K",
}

// compareWithMemory makes random calls on a store and on memstore, on a clock that goes forward, and compares the answers.
func compareWithMemory(s *suite, rng *rand.Rand, prefix string, blocks bool) {
	s.Helper()
	memory := *s
	memory.Store = memstore.New(&memstore.Options{Now: s.Now})
	both := [...]*script{newScript(&memory, "20/40s 9/7s"), newScript(s, "20/40s 9/7s")}
	if blocks && s.Store.Powers()&driver.CanBlock != 0 {
		for _, r := range both {
			r.options.Block = sash.Block{Refusals: 1 + len(prefix)%3, Window: window, For: 15 * time.Second}
		}
	}
	var held []string // results that were not settled
	trace := ""
	for step := range 80 {
		s.Advance(time.Duration(1+rng.IntN(3_000_000)) * time.Microsecond)
		key, units := prefix+string("abc"[rng.IntN(3)]), strconv.Itoa(1+rng.IntN(7))
		verb, rest, _ := strings.Cut(randomLines[rng.IntN(len(randomLines))], " ")
		corrects := verb == "settle" || verb == "extend"
		if !both[1].can(verb) || corrects && len(held) == 0 || verb == "extend" && !extends(s.algorithm) {
			continue
		}
		if corrects {
			i := rng.IntN(len(held))
			if rest = held[i] + " " + rest; verb == "settle" {
				rest += " " + prefix + held[i]
				held = slices.Delete(held, i, i+1)
			}
		}
		line := verb + " " + strings.NewReplacer("Ka", prefix+"a", "Kb", prefix+"b", "K", key, "N", units).Replace(rest)
		trace += fmt.Sprintf("\n\tat %d: %s", s.Now().UnixMicro(), line)
		var answers [2]string
		for i, r := range both {
			got := r.call(strings.Fields(line), line)
			r.results[strconv.Itoa(step)] = got
			if answers[i] = got.String(); i == 1 && (verb == "reserve" || verb == "book" || verb == "bookall") && got.Allowed {
				held = append(held, strconv.Itoa(step))
			}
		}
		if trace += ": " + answers[0]; answers[0] != answers[1] {
			s.broken("memstore answers %s, and the store %s, after%s", answers[0], answers[1], trace)
		}
	}
}

// String returns what two stores agree on.
func (s *scripted) String() string {
	text := fmt.Sprint(s.Allowed, " after ", s.RetryAfter, s.Delay, ", ", s.Charged, s.cooled, s.gone, s.Blocked)
	for _, l := range s.Limits() {
		text += fmt.Sprint("; ", l.Remaining, " ", l.RetryAfter, " ", l.ResetAfter)
	}
	return text
}
