package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
)

// A line is a request of a made log.
type line struct {
	at int64
	Selection
}

// madeLog makes a log of several servers, one after the other, each with times that are equal, late, or long ago.
func madeLog(r *rand.Rand) (log []line) {
	for range 1 + r.IntN(3) {
		at := 1431857100*second + r.Int64N(100)*second
		for range r.IntN(400) {
			if r.IntN(3) > 0 {
				at += r.Int64N(3_000_000) / second * second
			}
			late := int64(0)
			switch r.IntN(20) {
			case 0:
				late = r.Int64N(5 * second)
			case 1:
				late = r.Int64N(3000) * second
			}
			log = append(log, line{at - late, Selection{
				Key: fmt.Sprint("client ", r.IntN(1+r.IntN(12))), Cost: 1 + r.Int64N(3)*r.Int64N(2), Route: fmt.Sprint("/", r.IntN(300)), Class: uint8(r.IntN(3)),
			}})
		}
	}
	return log
}

func traceOfLog(log []line, b Builder) *Trace {
	for _, l := range log {
		b.Add(l.at, l.Selection)
	}
	return b.Trace()
}

// everything returns what every method says of a trace.
func everything(t *testing.T, trace *Trace) map[string]any {
	t.Helper()
	all := make(map[string]any)
	note := func(what string, v any, err error) {
		if err != nil {
			t.Fatal(what, err)
		}
		all[what] = v
	}
	limits := []sash.Limit{sash.Every(4, 10*time.Second), sash.PerMinute(9)}
	candidates := []Candidate{
		{Limits: limits, Shares: []int{80}}, {Limits: limits, Retry: FullJitter}, {Limits: limits, Retry: HonourRetryAfter},
		{Limits: limits[:1], Options: sash.Options{Algorithm: sash.FixedWindow}, Retry: NaiveRetry}, {Limits: []sash.Limit{sash.PerCalendar(9, sash.CalendarHour, nil)}},
	}
	outcomes, err := trace.Run(t.Context(), candidates, &RunOptions{Worst: 1000, Days: true})
	note("outcomes", outcomes, err)
	demands, err := trace.Demands(t.Context(), candidates)
	note("demands", demands, err)
	caveats, err := trace.Caveats(t.Context(), time.Minute)
	note("caveats", caveats, err)
	heat, err := trace.Heat(t.Context(), trace.Busiest(5), 7)
	note("heat", heat, err)
	moments, err := trace.Timeline(t.Context(), candidates[0], trace.Busiest(1)[0])
	note("timeline", moments, err)
	suggestion, err := trace.Suggest(t.Context(), Caps{Clients: 0.3, Requests: 0.05}, 10*time.Second, time.Minute)
	note("suggestion", suggestion, err)
	coverage, err := trace.Coverage(t.Context())
	note("coverage", coverage, err)
	daily, err := trace.Daily(t.Context(), coverage, Caps{Clients: 0.3}, 10*time.Second, time.Minute, 1)
	note("days", daily, err)
	note("busiest", trace.Busiest(1000), nil)
	note("counts", trace.Counts(), nil)
	first, last := trace.Span()
	note("span", []time.Time{first, last}, nil)
	return all
}

// Whatever is written to a file, and however it is cut into runs, requests come in time order, those of the same time as
// they were added, and every result is the same.
func TestResultsDoNotDependOnMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	spilled, merged := 0, 0
	for round := range 16 {
		log := madeLog(r)
		if len(log) == 0 {
			continue
		}
		small := sizes{batch: 1 + r.IntN(200), block: 1 + r.IntN(300), runs: 1 + r.IntN(8)}
		trace := traceOfLog(log, Builder{Memory: 1 << 17, sizes: small})
		tight := traceOfLog(log, Builder{Memory: least(trace) + r.Int64N(2000) - 500, sizes: small})
		if tight.Spilled() > 0 {
			spilled++
		}
		if len(tight.events.runs) == 1 {
			merged++
		}

		want := slices.Clone(log)
		slices.SortStableFunc(want, func(a, b line) int { return cmp.Compare(a.at, b.at) })
		i := 0
		err := tight.each(t.Context(), func(e *event) error {
			w := want[i]
			if got := (line{e.at, Selection{Key: tight.clients[e.client].name, Cost: e.cost, Route: tight.routes[e.route], Class: e.class}}); got != w {
				return fmt.Errorf("request %d is %+v, want %+v", i, got, w)
			}
			i++
			return nil
		})
		if err != nil || i != len(want) {
			t.Fatalf("round %d, %+v: %d of %d: %v", round, small, i, len(want), err)
		}

		inMemory := everything(t, traceOfLog(log, Builder{}))
		for what, got := range everything(t, tight) {
			if !reflect.DeepEqual(got, inMemory[what]) {
				t.Errorf("round %d, %+v: %s\n%+v\nand in memory\n%+v", round, small, what, got, inMemory[what])
			}
		}
		tight.Close()
		trace.Close()
	}
	if spilled < 8 || merged < 2 {
		t.Errorf("%d logs went to a file, and %d were a single run: the test shows too little", spilled, merged)
	}
}

// least returns the memory of the names of a trace.
func least(t *Trace) (n int64) {
	for _, c := range t.clients {
		n += int64(len(c.name)) + bytesPerName
	}
	for _, r := range t.routes {
		n += int64(len(r)) + bytesPerName
	}
	return n + 1
}

// spilledTrace returns a trace with its requests in a file in the given folder.
func spilledTrace(t *testing.T, folder string) *Trace {
	t.Helper()
	b := Builder{Memory: 2000, Folder: folder, sizes: sizes{batch: 100, block: 64, runs: 4}}
	for i := range int64(3000) {
		b.Add(1431857100*second+i*137, Selection{Key: "a", Cost: 1, Route: "/"})
	}
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	trace := b.Trace()
	if trace.Spilled() == 0 {
		t.Fatal("nothing is in a file")
	}
	t.Cleanup(trace.Close)
	return trace
}

func TestNothingIsLeftInTheTemporaryFolder(t *testing.T) {
	folder := t.TempDir()
	trace := spilledTrace(t, folder)
	trace.Close()
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestErrorsOfTheTemporaryFile(t *testing.T) {
	missing := t.TempDir() + "/missing"
	b := Builder{Memory: 500, Folder: missing, sizes: sizes{batch: 10, block: 64, runs: 4}}
	for i := range int64(3000) {
		b.Add(1431857100*second+i*137, Selection{Key: "a", Cost: 1, Route: "/"})
	}
	if b.Err() == nil || !strings.Contains(b.Err().Error(), missing) || !strings.Contains(b.Err().Error(), "TMPDIR") {
		t.Errorf("no folder: %v", b.Err())
	}
	trace := b.Trace()
	if _, err := trace.Demand(t.Context(), time.Minute); err == nil {
		t.Error("the trace has no error")
	}
	if _, err := trace.Run(t.Context(), []Candidate{{Limits: []sash.Limit{sash.PerMinute(1)}}}, nil); err == nil {
		t.Error("a run has no error")
	}

	full := spilledTrace(t, t.TempDir())
	var openErr error
	if full.events.spilled.file, openErr = os.Open(t.TempDir()); openErr != nil { // nothing can be written to a folder
		t.Fatal(openErr)
	}
	if _, err := full.events.spilled.write([]byte("block")); err == nil || !strings.Contains(err.Error(), "let TMPDIR name a folder with more room") {
		t.Errorf("a file that cannot be written: %v", err)
	}

	changed := spilledTrace(t, t.TempDir())
	if _, err := changed.events.spilled.file.WriteAt([]byte{255}, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := changed.Demand(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a file that changed: %v", err)
	}
	gone := spilledTrace(t, t.TempDir())
	if err := gone.events.spilled.file.Truncate(100); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Heat(t.Context(), []string{"a"}, 3); err == nil || !strings.Contains(err.Error(), "temporary file") {
		t.Errorf("a file that was cut off: %v", err)
	}
}

func TestMemoryThatNamesFill(t *testing.T) {
	b := Builder{Names: 10_000, sizes: sizes{batch: 100, block: 64, runs: 4}}
	for i := range int64(3000) {
		b.Add(1431857100*second+i, Selection{Key: fmt.Sprint(i), Cost: 1, Route: "/"})
	}
	if err := b.Err(); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "clients") {
		t.Errorf("%v", err)
	}
}

func TestPassesReportProgressAndEndWithTheContext(t *testing.T) {
	var b Builder
	for i := range int64(3 * steps) {
		b.Add(1431857100*second+i, Selection{Key: "a", Cost: 1, Route: "/"})
	}
	trace, done := b.Trace(), int64(0)
	watched := trace.WithProgress(func(now int64) {
		if now < done {
			t.Errorf("%d after %d", now, done)
		}
		done = now
	})
	if _, err := watched.Demand(t.Context(), time.Minute); err != nil || done != 3*steps {
		t.Errorf("%d done, %v", done, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopping := trace.WithProgress(func(now int64) {
		if done = now; now > 0 {
			stop()
		}
	})
	if _, err := stopping.Demand(ctx, time.Minute); !errors.Is(err, context.Canceled) || done > 2*steps {
		t.Errorf("%d done, %v", done, err)
	}
}
