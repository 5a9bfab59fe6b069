package verify

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A faulty store changes one in twenty of the answers that a fault is about.
type faulty struct {
	driver.Store
	calls   atomic.Int64
	applies func(driver.Answer) bool
	change  func(*driver.Answer) error
}

func (f *faulty) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	res, err := f.Store.Decide(ctx, req)
	if err == nil && req.Cost > 0 && f.applies(res) && f.calls.Add(1)%20 == 0 {
		err = f.change(&res)
	}
	return res, err
}

func (f *faulty) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	return f.Store.(driver.Resetter).Reset(ctx, key, policy)
}

// restated is an answer with other refusals, all of which end after retry microseconds.
func restated(a *driver.Answer, refusals uint64, retry int64) driver.Answer {
	statuses := slices.Clone(a.Statuses())
	for i := range statuses {
		statuses[i].Retry = retry
	}
	return driver.NewAnswer(a.At, refusals, statuses)
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
			report, err := Run(t.Context(), store, Options{For: 2 * time.Second, Seed: 7, Workers: 4})
			if err != nil {
				t.Fatal(err)
			}
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
	report, err := Run(t.Context(), memstore.New(nil), Options{For: 3 * time.Second, Workers: 2, Algorithm: sash.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Faults) == 0 || report.Faults[0].Over == nil || report.Faults[0].Over.Units < report.Faults[0].Over.Limit.Units*3/2 {
		t.Errorf("%+v", report.Faults)
	}
}

func TestTheSeedDrawsTheLimits(t *testing.T) {
	limits := func(seed uint64) (out []sash.Limit) {
		s, err := newStage(memstore.New(nil), Options{Seed: seed, Workers: 1}, 3)
		if err != nil {
			t.Fatal(err)
		}
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
