package playground

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

func run(t *testing.T, s Scenario) map[string]Track {
	t.Helper()
	tracks := servertest.Must(Run(t.Context(), s))(t)
	all := make(map[string]Track)
	for _, track := range tracks {
		all[track.Algorithm] = track
	}
	return all
}

// A full burst on either side of a boundary of the fixed window.
func TestTheBoundaryProof(t *testing.T) {
	tracks := run(t, Scenario{Limits: "50/10s", Resolution: 100 * time.Millisecond, Calls: []Call{{At: 9 * time.Second, Cost: 1, Count: 50}, {At: 11 * time.Second, Cost: 1, Count: 50}}})
	for algorithm, after := range map[string]int{
		"sliding-log": 0, "sorted-set-log": 0, "sliding-buckets": 0, // at most 50 in any ten seconds
		"fixed-window":    50, // the counter starts again at the boundary
		"sliding-counter": 5,  // nine tenths of the first 50 still count
		"gcra":            10, // two seconds at five a second are free again
	} {
		got := tracks[algorithm]
		if got.Answers[0].Admitted != 50 || got.Answers[1].Admitted != after || got.Worst[0].Most != int64(50+after) {
			t.Errorf("%+v, want 50 and %d", got, after)
		}
	}
}

// No window of an exact algorithm holds more than its limit.
func TestTracksKeepTheDefinition(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3))
		s := Scenario{Limits: "3/5s,7/20s", Algorithms: []string{"sliding-log", "sorted-set-log", "gcra"}}
		for range 1 + random.IntN(15) {
			s.Calls = append(s.Calls, Call{At: time.Duration(random.IntN(60)) * time.Second, Cost: 1 + random.Int64N(3), Count: 1 + random.IntN(3)})
		}
		tracks := run(t, s)
		if a, b := tracks["sliding-log"].Answers, tracks["sorted-set-log"].Answers; !slices.EqualFunc(a, b, func(a, b Answer) bool { return a.Admitted == b.Admitted && a.RetryAfter == b.RetryAfter }) {
			t.Fatalf("seed %d: the exact algorithms differ: %+v, %+v", seed, a, b)
		}
		for name, track := range tracks {
			if slices.ContainsFunc(track.Worst, func(w Worst) bool { return name != "gcra" && w.Most > w.Units }) {
				t.Fatalf("seed %d: %s: %+v", seed, name, track.Worst)
			}
		}
	}
}

func TestBookedCallsStartLater(t *testing.T) {
	tracks := run(t, Scenario{Limits: "2/10s", Calls: []Call{{At: time.Second, Cost: 1, Count: 5, Book: true}}})
	starts := tracks["sliding-log"].Answers[0].Starts
	want := []time.Duration{time.Second, time.Second, 11 * time.Second, 11 * time.Second, 21 * time.Second}
	if !slices.Equal(starts, want) || tracks["sliding-log"].Worst[0].Most != 2 {
		t.Errorf("%v, want %v", starts, want)
	}
	if note := tracks["gcra"].Answers[0].Note; !strings.Contains(note, "book") {
		t.Errorf("gcra does not book, and says %q", note)
	}
}

func TestScenariosThatAreWrong(t *testing.T) {
	one := []Call{{Cost: 1, Count: 1}}
	for name, c := range map[string]struct {
		s    Scenario
		want string
	}{
		"no limit":        {Scenario{Calls: one}, "invalid limit"},
		"a calendar":      {Scenario{Limits: "1/day@UTC", Calls: one}, "limit of the calendar"},
		"an algorithm":    {Scenario{Limits: "1/1s", Algorithms: []string{"leaky"}, Calls: one}, "unknown algorithm"},
		"before":          {Scenario{Limits: "1/1s", Calls: []Call{{At: -1, Cost: 1, Count: 1}}}, "call 1: its time"},
		"no calls in one": {Scenario{Limits: "1/1s", Calls: []Call{{Cost: 1}}}, "its number"},
		"a nanosecond":    {Scenario{Limits: "1/1s", Calls: []Call{{At: 1, Cost: 1, Count: 1}}}, "whole microseconds"},
		"no units":        {Scenario{Limits: "1/1s", Calls: []Call{{Count: 1}}}, "its cost"},
		"too many":        {Scenario{Limits: "1/1s", Calls: []Call{{Cost: 1, Count: maxCalls}, {Cost: 1, Count: 1}}}, "more than 2000 calls"},
	} {
		if _, err := Run(t.Context(), c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	tracks := run(t, Scenario{Limits: "1/1s,2/1m", Resolution: time.Hour, Calls: []Call{{Cost: 2, Count: 1}}})
	if !strings.Contains(tracks["sliding-log"].Answers[0].Note, "limit") || tracks["sliding-buckets"].Error == "" {
		t.Errorf("%+v", tracks)
	}
}

// The page in the repository is that of these files. The limiter within it is compared by make test-browser.
func TestThePageIsBuiltOfItsFiles(t *testing.T) {
	page := servertest.Must(os.ReadFile("playground.html"))(t)
	for file, until := range map[string]string{"page/app.js": "", "page/style.css": "", "page/index.html": "/*style.css*/"} {
		text := servertest.Must(os.ReadFile(file))(t)
		if until != "" {
			text, _, _ = bytes.Cut(text, []byte(until))
		}
		if !bytes.Contains(page, bytes.TrimSpace(text)) {
			t.Errorf("playground.html does not have this %s: run make playground", file)
		}
	}
}
