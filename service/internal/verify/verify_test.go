package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

// A faulty store changes one in twenty of the answers that a fault is about.
type faulty struct {
	driver.Store
	calls   atomic.Int64
	applies func(driver.Answer) bool
	change  func(*driver.Answer) error
}

func (f *faulty) Do(ctx context.Context, b *driver.Batch) error {
	err := f.Store.Do(ctx, b)
	if op := &b.Ops[0]; err == nil && op.Kind == driver.Charge && op.Cost > 0 && f.applies(op.Answer) && f.calls.Add(1)%20 == 0 {
		err = f.change(&op.Answer)
	}
	return err
}

// restated is an answer with other refusals, all of which end after retry microseconds.
func restated(a *driver.Answer, refusals uint64, retry int64) (other driver.Answer) {
	statuses := slices.Clone(a.Statuses())
	for i := range statuses {
		statuses[i].Retry = retry
	}
	other.Set(a.At, refusals, statuses)
	return other
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	refused := func(r driver.Answer) bool { return !r.Allowed() }
	room := func(r driver.Answer) bool { return r.Allowed() && r.Remaining() > 0 }
	every := func(driver.Answer) bool { return true }
	for name, c := range map[string]struct {
		applies func(driver.Answer) bool
		change  func(*driver.Answer) error
		found   func(Fault) int // nil where nothing is to be found
	}{
		"a correct store":                    {every, func(*driver.Answer) error { return nil }, nil},
		"an answer that is lost":             {every, func(*driver.Answer) error { return errors.New("lost") }, nil},
		"a refusal reported as an admission": {refused, func(r *driver.Answer) error { r.Refusals = 0; return nil }, func(f Fault) int { return f.OverAdmitted }},
		"a refusal while there is room": {room, func(r *driver.Answer) error {
			*r = restated(r, 1, 1000)
			return nil
		}, func(f Fault) int { return f.FalseRefusals }},
		"a retry time that is a microsecond too long": {refused, func(r *driver.Answer) error {
			*r = restated(r, r.Refusals, r.Retry()+1)
			return nil
		}, func(f Fault) int { return f.WrongWaits }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &faulty{Store: memstore.New(nil), applies: c.applies, change: c.change}
			report := servertest.Must(Run(t.Context(), store, Options{For: 2 * time.Second, Seed: 7, Workers: 4}))(t)
			found := 0
			for _, f := range report.Faults {
				if c.found != nil {
					found += c.found(f)
				}
			}
			if c.found == nil && len(report.Faults) > 0 || c.found != nil && found == 0 {
				t.Errorf("%d faults: %+v", len(report.Faults), report.Faults)
			}
			if lost := report.Unanswered > 0; lost != (report.Doubtful > 0) {
				t.Errorf("%d calls had no answer, and %d refusals are in doubt", report.Unanswered, report.Doubtful)
			}
			if report.Admitted < 100 || report.Refused < 100 || report.Units < int64(report.Admitted) {
				t.Errorf("too little was done: %+v", report)
			}
		})
	}
}

func TestAClockThatGoesBackTellsNothing(t *testing.T) {
	var calls atomic.Int64
	store := memstore.New(&memstore.Options{Now: func() time.Time {
		return time.Now().Add(-time.Duration(calls.Add(1)/1000) * time.Second)
	}})
	if _, err := Run(t.Context(), store, Options{For: time.Second, Workers: 2}); !errors.Is(err, ErrClock) {
		t.Errorf("error %v", err)
	}
}

// What is found of a fixed window is close to its worst, twice the limit, and not just a little more.
func TestAFixedWindowIsFoundAtTwiceItsLimit(t *testing.T) {
	report := servertest.Must(Run(t.Context(), memstore.New(nil), Options{For: 3 * time.Second, Workers: 2, Algorithm: sash.FixedWindow}))(t)
	if len(report.Faults) == 0 || report.Faults[0].Over == nil || report.Faults[0].Over.Units < report.Faults[0].Over.Limit.Units*3/2 {
		t.Errorf("%+v", report.Faults)
	}
}

func TestTheSeedDrawsTheLimits(t *testing.T) {
	limits := func(seed uint64) (out []sash.Limit) {
		s := servertest.Must(newStage(memstore.New(nil), Options{Seed: seed, Workers: 1}, 3))(t)
		for _, sub := range s.subjects {
			out = append(out, sub.limits...)
		}
		return out
	}
	a, b, c := limits(1), limits(1), limits(2)
	if len(a) != len(b) || a[0] != b[0] || a[len(a)-1] != b[len(b)-1] {
		t.Error("one seed draws different limits")
	}
	if a[0] == c[0] && a[1] == c[1] {
		t.Error("two seeds draw the same limits")
	}
	for seed := range uint64(300) { // every one is valid
		limits(seed)
	}
}

// What has ended leaves no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(t *testing.T, lines ...string) *Recording {
	t.Helper()
	return servertest.Must(ReadRecording("calls", strings.NewReader(strings.Join(lines, "\n"))))(t)
}

// at writes a call that was decided at one instant, in seconds.
func at(key string, cost int, when string, admitted bool) string {
	return fmt.Sprintf(`{"key": %q, "cost": %d, "sent": %s, "received": %s, "admitted": %v}`, key, cost, when, when, admitted)
}

func TestARecordingWithoutDoubtIsJudgedExactly(t *testing.T) {
	limits := []sash.Limit{sash.Every(3, time.Minute)}
	for name, c := range map[string]struct {
		calls         []string
		over, refused int
		units         int64 // in the fullest window that is over
	}{
		"three, and the fourth a window after the first": {[]string{at("a", 1, "0", true), at("a", 1, "1", true), at("a", 1, "59.9", true), at("a", 1, "60", true)}, 0, 0, 0},
		"the fourth a microsecond earlier":               {[]string{at("a", 1, "0", true), at("a", 1, "1", true), at("a", 1, "59.9", true), at("a", 1, "59.999999", true)}, 1, 0, 4},
		"costs":                                          {[]string{at("a", 2, "0", true), at("a", 2, "1", true), at("a", 1, "2", true)}, 2, 0, 5},
		"other keys do not count":                        {[]string{at("a", 2, "0", true), at("b", 2, "1", true)}, 0, 0, 0},
		"lines in any order":                             {[]string{at("a", 2, "1", true), at("a", 2, "0", true)}, 1, 0, 4},
		"a refusal without room":                         {[]string{at("a", 3, "0", true), at("a", 1, "59.999999", false)}, 0, 0, 0},
		"a refusal with room":                            {[]string{at("a", 3, "0", true), at("a", 1, "60", false)}, 0, 1, 0},
		"a refusal that can never fit":                   {[]string{at("a", 4, "0", false)}, 0, 0, 0},
		"a refusal after a call without an answer":       {[]string{`{"key": "a", "cost": 3, "sent": 0}`, at("a", 1, "100", false)}, 0, 0, 0},
		"the call without an answer came later":          {[]string{`{"key": "a", "cost": 3, "sent": 101}`, at("a", 1, "100", false)}, 0, 1, 0},
		"calls without an answer are no admission":       {[]string{at("a", 3, "0", true), `{"key": "a", "sent": 1, "received": 2, "admitted": null}`, `{"key": "a", "sent": 1}`}, 0, 0, 0},
		"one line, no line end, and an empty one":        {[]string{"", `{"key": "a", "sent": 1e3, "received": "1970-01-01T00:16:40Z", "admitted": true}`, ""}, 0, 0, 0},
	} {
		v := read(t, c.calls...).Judge(limits)
		var f Fault
		if len(v.Faults) > 0 {
			f = v.Faults[0]
		}
		units := int64(0)
		if f.Over != nil {
			units = f.Over.Units
		}
		if f.OverAdmitted != c.over || f.FalseRefusals != c.refused || units != c.units || (f.False != nil) != (c.refused > 0) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A fault that is reported is there however each call's instant lies between its two times; and one that is there however
// they lie by more than what a window's ends leave open is reported.
func TestNothingIsReportedThatMayNotHaveBeen(t *testing.T) {
	const window = 20
	limit := sash.Every(4, window*time.Microsecond)
	reported := 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 7))
		r := &Recording{keys: map[string]*recorded{"": {}}, order: []string{""}}
		of := r.keys[""]
		for range 1 + random.IntN(14) {
			from := random.Int64N(60)
			s := judge.Charge{From: from * 1000, To: (from + random.Int64N(9)) * 1000, Units: 1 + random.Int64N(2)}
			switch random.IntN(8) {
			case 0, 1:
				of.refused = append(of.refused, s)
			case 2:
				of.unknown = append(of.unknown, s)
			default:
				of.admitted = append(of.admitted, s)
			}
		}
		v := r.Judge([]sash.Limit{limit})
		if len(v.Faults) == 0 {
			continue
		}
		reported++
		f := v.Faults[0]
		for range 40 {
			over, false_ := possible(random, of, limit)
			if f.Over != nil && over < f.Over.Units {
				t.Fatalf("seed %d: %d units are reported, and there may have been only %d: %+v", seed, f.Over.Units, over, of)
			}
			if false_ < f.FalseRefusals {
				t.Fatalf("seed %d: %d false refusals are reported, and there may have been only %d: %+v", seed, f.FalseRefusals, false_, of)
			}
		}
	}
	if reported < 500 {
		t.Errorf("only %d of the recordings showed a fault", reported)
	}
}

// possible draws an instant for every call, and returns the most units in a window, and how many refusals had room. Refusals
// are decided after the admissions of the same instant; whether a call without an answer was charged is drawn too.
func possible(random *rand.Rand, of *recorded, limit sash.Limit) (most int64, room int) {
	draw := func(c judge.Charge) judge.Charge {
		at := c.From + random.Int64N(c.To-c.From+1)
		switch random.IntN(3) {
		case 0:
			at = c.From
		case 1:
			at = c.To
		}
		return judge.Charge{From: at, To: at, Units: c.Units}
	}
	var admitted []judge.Charge
	for _, c := range of.admitted {
		admitted = append(admitted, draw(c))
	}
	charged := slices.Clone(admitted)
	for _, c := range of.unknown {
		if random.IntN(2) == 0 {
			at := c.From + random.Int64N(80_000)
			charged = append(charged, judge.Charge{From: at, To: at, Units: c.Units})
		}
	}
	in := func(charges []judge.Charge, x int64) (units int64) {
		for _, c := range charges {
			if c.From > x-int64(limit.Window) && c.From <= x {
				units += c.Units
			}
		}
		return units
	}
	for _, c := range admitted {
		most = max(most, in(admitted, c.From))
	}
	for _, c := range of.refused {
		if in(charged, draw(c).From)+c.Units <= limit.Units {
			room++
		}
	}
	return most, room
}

func TestARecordingThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"\n\n", "there is no call"},
		"no answer":          {`{"key": "a", "sent": 1, "received": 2}`, `no call in it has "admitted"`},
		"not JSON":           {"{\n", "calls:1: it is not a JSON object such as"},
		"an unknown key":     {at("a", 1, "0", true) + "\n" + `{"key": "a", "sent": 1, "received": 2, "allowed": true}`, `calls:2: unknown key "allowed": a call has key, cost, sent, received and admitted`},
		"an empty key":       {`{"key": "", "sent": 1, "received": 2, "admitted": true}`, `calls:1: "key" is missing or empty`},
		"no key":             {at("a", 1, "0", true) + "\n" + `{"sent": 1, "received": 1, "admitted": true}`, `calls:2: "key" is missing or empty`},
		"null as key":        {`{"key": null, "sent": 1, "received": 1, "admitted": true}`, `calls:1: "key" is missing or empty`},
		"a number as key":    {`{"key": 7, "sent": 1, "received": 1, "admitted": true}`, `"key" cannot be a number`},
		"no time":            {`{"key": "a", "admitted": true}`, `calls:1: "sent" is missing`},
		"no end":             {at("a", 1, "0", true) + "\n" + `{"key": "a", "sent": 1, "admitted": true}`, `calls:2: "received" is missing`},
		"ends before":        {`{"key": "a", "sent": 2, "received": 1, "admitted": true}`, `"received" is before "sent"`},
		"milliseconds":       {`{"key": "a", "sent": 1763900000001, "received": 1763900000002, "admitted": true}`, "are these milliseconds?"},
		"a date":             {`{"key": "a", "sent": "yesterday"}`, "nor RFC 3339"},
		"a list as time":     {`{"key": "a", "sent": [1]}`, "nor RFC 3339"},
		"half a unit":        {`{"key": "a", "sent": 1, "cost": 0.5}`, `"cost" cannot be a number 0.5`},
		"no unit":            {`{"key": "a", "sent": 1, "cost": 0}`, `"cost" is 0: it must be 1`},
		"yes":                {`{"key": "a", "sent": 1, "received": 1, "admitted": "yes"}`, `"admitted" cannot be a string`},
		"a long line":        {at("a", 1, "0", true) + "\n" + strings.Repeat("x", longestLine+1), "calls:2: the line is longer"},
		"two objects a line": {at("a", 1, "0", true) + at("a", 1, "0", true), "it is not a JSON object such as"},
	} {
		if _, err := ReadRecording("calls", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestCostsThatCannotBeAdded(t *testing.T) {
	r := read(t, at("a", 1, "0", true))
	r.units = math.MaxInt64 - 1
	if err := r.add([]byte(at("a", 2, "0", true))); err == nil || !strings.Contains(err.Error(), "too large to be added") {
		t.Error(err)
	}
}

// An exact limiter is kept when its history has times finer than a microsecond, and calls come faster than that.
func TestAnExactLimiterIsNotAccusedByRounding(t *testing.T) {
	limit := sash.Every(3, 100*time.Microsecond)
	random := rand.New(rand.NewPCG(3, 5))
	var lines []string
	var admitted []int64
	refused := 0
	for now := int64(1763900000_000000000); len(lines) < 20_000; now += random.Int64N(900) {
		for len(admitted) > 0 && admitted[0] <= now-int64(limit.Window) {
			admitted = admitted[1:]
		}
		ok := int64(len(admitted)) < limit.Units
		if ok {
			admitted = append(admitted, now)
		} else {
			refused++
		}
		lines = append(lines, at("a", 1, fmt.Sprintf("%d.%09d", now/1e9, now%1e9), ok))
	}
	if refused == 0 {
		t.Fatal("no call was refused")
	}
	if v := read(t, lines...).Judge([]sash.Limit{limit}); len(v.Faults) > 0 {
		t.Errorf("%+v", v.Faults)
	}
}

func FuzzReadRecording(f *testing.F) {
	f.Add(at("a", 1, "0", true))
	f.Add(`{"key": "a", "sent": "2025-11-23T12:13:20.001Z", "received": null, "admitted": null}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ReadRecording("calls", strings.NewReader(text))
		if err != nil {
			return
		}
		v := r.Judge([]sash.Limit{sash.Every(1, time.Second)})
		if calls := v.Admitted + v.Refused + v.Unanswered; calls == 0 || v.Keys == 0 || v.Keys > calls {
			t.Errorf("%+v", v)
		}
	})
}
