package callers_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/judge"
)

// A shift is the part of a job in which each caller waits for a slot once, and holds it for the time of a task.
type shift struct {
	Slots  int64
	Task   time.Duration
	Begins time.Time // when all processes begin
}

// work makes the calls of a job with a shift. Call and Return are nanoseconds since 1970, so they can be compared.
func (j job) work() ([]call, error) {
	client := newClient(j.Addr)
	defer client.Close()
	c, err := sash.NewConcurrency(goredisstore.New(client, nil), options(j.Algorithm), j.Shift.Slots, time.Minute)
	if err != nil {
		return nil, err
	}
	if err := client.Ping(context.Background()).Err(); err != nil {
		return nil, err
	}
	time.Sleep(time.Until(j.Shift.Begins))
	var (
		mu     sync.Mutex
		all    []call
		failed error
		group  sync.WaitGroup
	)
	for n := range j.Callers {
		group.Go(func() {
			slot, err := c.Wait(context.Background(), j.Key)
			mine := call{Client: j.Client + n, Call: time.Now().UnixNano()}
			if err == nil {
				time.Sleep(j.Shift.Task)
				mine.Return = time.Now().UnixNano()
				err = slot.Release(context.Background())
			}
			mu.Lock()
			defer mu.Unlock()
			if all = append(all, mine); err != nil {
				failed = err
			}
		})
	}
	group.Wait()
	return all, failed
}

// Slots are taken again with little loss, within a process and between processes, and never more are held at once than
// there are. What other work on the machine takes is lost too, so the best of several runs counts, and 80 % are enough:
// virtual time shows 90 % (TestASlotIsTakenWhenItIsReleased).
func TestSlotsAreTakenAgain(t *testing.T) {
	l := startLive(t)
	const slots, waiters, task = 5, 100, 20 * time.Millisecond
	for _, processes := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			var shares, scripts []float64
			for run := 0; run < 5 || run < 15 && slices.Max(shares) < 0.8; run++ {
				before := l.scripts(t)
				begins := time.Now().Add(time.Second)
				calls := job{
					Addr: l.Addr(), Key: fmt.Sprint("slots", processes, run), Callers: waiters / processes,
					Shift: shift{Slots: slots, Task: task, Begins: begins},
				}.inProcesses(t, processes)
				last := slices.MaxFunc(calls, func(a, b call) int { return cmp.Compare(a.Return, b.Return) })
				took := time.Unix(0, last.Return).Sub(begins)
				shares = append(shares, (waiters/slots*task).Seconds()/took.Seconds())
				scripts = append(scripts, float64(l.scripts(t)-before)/waiters)
				var held []judge.Call
				for _, c := range calls {
					held = append(held, judge.Call{At: time.UnixMicro(c.Call / 1000), Cost: 1})
				}
				// Each is held for at least the task.
				if err := judge.CheckHistory([]sash.Limit{sash.Every(slots, task)}, held); err != nil {
					t.Error(err)
				}
			}
			t.Logf("%% of what is possible: %s", spread(100, shares))
			t.Logf("script calls for each admission: %s", spread(1, scripts))
			if best := slices.Max(shares); best < 0.8 {
				t.Errorf("the best of %d runs reached %.0f %% of what is possible", len(shares), 100*best)
			}
		})
	}
}

// spread returns the median of numbers, and the least and the greatest.
func spread(unit float64, of []float64) string {
	slices.Sort(of)
	return fmt.Sprintf("median %.3g (%.3g to %.3g)", unit*of[len(of)/2], unit*of[0], unit*of[len(of)-1])
}

// scripts returns how many scripts the server has run.
func (l *live) scripts(t *testing.T) (n int) {
	t.Helper()
	stats, err := l.client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	count, _, _ := strings.Cut(rest, ",")
	n, _ = strconv.Atoi(count)
	return n
}
