package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
)

// A traffic is random calls on one subject that fill a log.
type traffic struct {
	name   string
	plans  [][]sash.Limit // drawn for each call
	calls  int
	gap    time.Duration // the most between two calls
	cost   int64         // the most of one call
	silent int           // one in so many calls comes after a long silence; 0 is none
	back   int           // one in so many calls comes after the clock went back; 0 is none
	oracle bool          // compare with the definition too, which takes time in proportion to the log
}

var traffics = []traffic{
	{
		name: "many hints, in changing order",
		plans: [][]sash.Limit{
			{sash.Every(2000, time.Hour), sash.Every(700, 11*time.Minute), sash.Every(200, 2*time.Minute), sash.Every(40, 10*time.Second)},
			{sash.Every(200, 2*time.Minute), sash.Every(40, 10*time.Second)},
			{sash.Every(40, 10*time.Second), sash.Every(700, 11*time.Minute), sash.PerCalendar(1500, sash.CalendarHour, nil)},
		},
		calls: 3000, gap: 900 * time.Millisecond, cost: 5, silent: 900, oracle: true,
	},
	{
		name: "a large ring, with dear calls and a second window",
		plans: [][]sash.Limit{
			{sash.Every(20_000, time.Minute), sash.Every(40_000, 3*time.Minute)},
			{sash.Every(40_000, 3*time.Minute)},
		},
		calls: 16_000, gap: 11 * time.Millisecond, cost: 3, silent: 20_000, back: 9000,
	},
}

func TestBigLogs(t *testing.T) {
	server := redistest.Start(t)
	for _, base := range traffics {
		for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets} {
			tr := base
			if a != sash.SlidingLog {
				if !tr.oracle {
					continue
				}
				tr.calls /= 3
			}
			t.Run(tr.name+"/"+a.String(), func(t *testing.T) {
				redis, clock, _ := virtual(t, server.Addr(), nil)
				memory := memstore.New(&memstore.Options{Now: clock.Now})
				if err := tr.run(a, redis, memory, clock); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func (tr traffic) run(a sash.Algorithm, first, second driver.Store, clock *judge.Clock) error {
	rng := rand.New(rand.NewPCG(uint64(tr.calls), 7))
	var policies []*driver.Policy
	for _, limits := range tr.plans {
		p, err := sash.NewPolicy(options(a), limits...)
		if err != nil {
			return err
		}
		policies = append(policies, p)
	}
	truth := newOracle()
	for i := range tr.calls {
		clock.Advance(time.Duration(rng.Int64N(tr.gap.Microseconds())) * time.Microsecond)
		if tr.silent > 0 && rng.IntN(tr.silent) == 0 {
			clock.Advance(time.Duration(rng.IntN(400)) * time.Second)
		}
		if tr.back > 0 && rng.IntN(tr.back) == 0 {
			clock.Advance(-time.Duration(rng.IntN(20_000)) * time.Millisecond)
		}
		req := driver.Request{Key: fmt.Sprint("big ", tr.name), Policy: policies[0], Cost: 1}
		if i > 0 {
			req.Policy = policies[rng.IntN(len(policies))]
		}
		switch rng.IntN(8) {
		case 0:
			req.Cost = 0
		case 1, 2:
			least := tr.cost
			for _, l := range req.Policy.Limits {
				least = min(least, l.Units)
			}
			req.Cost = 1 + rng.Int64N(least)
		}
		res, err := first.Decide(context.Background(), req)
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
		same, err := second.Decide(context.Background(), req)
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
		if tr.oracle {
			if err := truth.Check(clock.Now(), []driver.Request{req}, []driver.Answer{res}); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		res.Firm, same.Firm = false, false // stores may know it or not
		if !reflect.DeepEqual(res, same) {
			return fmt.Errorf("call %d, cost %d under %v: two stores answered\n\t%s\n\t%s", i, req.Cost, req.Policy.Limits, show(res), show(same))
		}
	}
	return nil
}

func show(answer driver.Answer) string {
	return fmt.Sprintf("refusals %b at %d; %+v", answer.Refusals, answer.At, answer.Statuses())
}
