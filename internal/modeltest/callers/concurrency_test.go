package callers_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
)

// The calls of two processes keep to the limits, and none is refused without need. Where no entry is shared they are those of
// a single limiter, in some order that their callers' clock allows.
func TestHistoriesOfTwoProcesses(t *testing.T) {
	server := redistest.Start(t)
	limits := []sash.Limit{sash.Every(20, 30*time.Millisecond), sash.Every(45, 100*time.Millisecond)}
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			j := job{Addr: server.Addr(), Key: "history", Algorithm: a, Limits: limits, Callers: 6, Calls: 250, MostCost: 3}
			calls := j.inProcesses(t, 2)
			var admissions, refusals []judge.Call
			var history []porcupine.Operation
			for _, s := range places(calls) {
				decided := judge.Call{At: time.UnixMicro(s.At), Cost: s.Cost}
				if s.Allowed {
					admissions = append(admissions, decided)
				} else {
					refusals = append(refusals, decided)
				}
				history = append(history, porcupine.Operation{ClientId: s.Client, Call: s.Call, Return: s.Return, Input: s.Cost, Output: s})
			}
			if len(admissions) < 30 || len(refusals) < 30 {
				t.Fatalf("only %d admissions and %d refusals", len(admissions), len(refusals))
			}
			if err := judge.CheckHistory(limits, admissions); err != nil {
				t.Error(err)
			}
			held := slices.Clone(limits)
			for i := range held { // a bucket may hold a unit longer, by no more than its resolution
				held[i].Window += resolutionOf(a)
			}
			if err := judge.CheckRefusals(held, admissions, refusals); err != nil {
				t.Error(err)
			}
			if a == sash.SlidingBuckets {
				return
			}
			if got := porcupine.CheckOperationsTimeout(model(limits), history, 30*time.Second); got != porcupine.Ok {
				t.Errorf("the history of %d calls is %v", len(history), got)
			}
		})
	}
}

// A step is a call as porcupine sees it. Its place among all calls is known up to those of the same
// microsecond: the server ran the scripts one after the other, and its clock did not go back.
type step struct {
	call
	first, last int
}

// A charged log is the model's state: how many calls were made, and what counts.
type chargedLog struct {
	calls   int
	charges []judge.Call
}

// model is the definition in terms of one key: admitted exactly when every limit has room.
func model(limits []sash.Limit) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return chargedLog{} },
		Step: func(state, _, output any) (bool, any) {
			log, s := state.(chargedLog), output.(step)
			if log.calls < s.first || log.calls > s.last {
				return false, state
			}
			room, left := true, int64(sash.MaxUnits)
			for _, l := range limits {
				var used int64
				for _, c := range log.charges {
					if s.At-c.At.UnixMicro() < l.Window.Microseconds() {
						used += c.Cost
					}
				}
				room = room && used+s.Cost <= l.Units
				left = min(left, l.Units-used)
			}
			next := chargedLog{calls: log.calls + 1, charges: log.charges}
			if room {
				left -= s.Cost // costs are the same for every limit
				next.charges = append(slices.Clone(log.charges), judge.Call{At: time.UnixMicro(s.At), Cost: s.Cost})
			}
			return room == s.Allowed && left == s.Remaining, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(chargedLog), b.(chargedLog)
			return x.calls == y.calls && slices.Equal(x.charges, y.charges)
		},
	}
}

// places finds the places that calls can have in the server's order.
func places(calls []call) []step {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.At, b.At) })
	steps := make([]step, len(calls))
	for i := 0; i < len(calls); {
		end := i
		for end < len(calls) && calls[end].At == calls[i].At {
			end++
		}
		for j := i; j < end; j++ {
			steps[j] = step{calls[j], i, end - 1}
		}
		i = end
	}
	return steps
}

func TestTheModelFindsWhatIsWrong(t *testing.T) {
	one := func(began, at int64, allowed bool) call {
		return call{Call: began, Return: began + 1, Cost: 1, Allowed: allowed, At: at}
	}
	for name, c := range map[string]struct {
		calls []call
		ok    bool
	}{
		"one and a refusal":             {[]call{one(0, 10, true), one(2, 11, false)}, true},
		"two of one":                    {[]call{one(0, 10, true), one(2, 11, true)}, false},
		"a false refusal":               {[]call{one(0, 10, true), one(2, 1_000_010, false)}, false},
		"decided after it was answered": {[]call{one(0, 11, false), one(2, 10, true)}, false},
	} {
		var history []porcupine.Operation
		for _, s := range places(c.calls) {
			history = append(history, porcupine.Operation{Call: s.Call, Return: s.Return, Output: s})
		}
		if ok := porcupine.CheckOperations(model([]sash.Limit{sash.Every(1, time.Second)}), history); ok != c.ok {
			t.Errorf("%s: linearizable: %v", name, ok)
		}
	}
}
