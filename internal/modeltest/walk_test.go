package modeltest

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"pgregory.net/rapid"

	"example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
	"example.com/sash/storetest"
)

func TestMain(m *testing.M) {
	// A hundred walks an algorithm and store by default; -rapid.checks=5000 makes it a longer search. The
	// log of a failure has all that is needed to repeat it.
	for name, value := range map[string]string{"rapid.checks": "100", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}

// start is far from any real time, so that the store's idea of the time is never right by chance.
var start = time.Date(2031, 3, 29, 22, 59, 58, 999_999_000, time.UTC)

// virtual is a store on a real server, with scripts and keys that live on a clock of the test's.
func virtual(t testing.TB, addr string, edit func(name, text string) string) (*redisstore.Store, *judge.Clock, *scripter) {
	clock := judge.NewClock(start)
	s := &scripter{client: newClient(addr), clock: clock, edit: edit, aging: &aging{ends: make(map[string]time.Time)}}
	t.Cleanup(func() { s.client.Close() })
	return redisstore.New(s, nil), clock, s
}

var walks atomic.Int64 // numbers the walks on one server

func TestRedisAnswersByTheDefinition(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			store, clock, scripts := virtual(t, server.Addr(), nil)
			rapid.Check(t, func(t *rapid.T) {
				choose := chooser(t)
				clock.Advance(start.Sub(clock.Now()))
				scripts.misled = false
				scripts.skew = func() time.Duration { return time.Duration(choose(120)-60) * time.Hour / 2 }
				err := judge.Walk(judge.Setup{
					Store: store, Now: clock.Now, Advance: clock.Advance,
					Algorithm: a, Steps: rapid.IntRange(1, 60).Draw(t, "steps"), Choose: choose,
					Prefix: fmt.Sprint(walks.Add(1), ":"),
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func chooser(t *rapid.T) func(n int) int {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
}

func TestRedisPassesTheSuite(t *testing.T) {
	server := redistest.Start(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if _, err := server.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		store, clock, _ := virtual(t, server.Addr(), nil)
		return storetest.Harness{Store: store, Now: clock.Now, Advance: clock.Advance}
	})
}
