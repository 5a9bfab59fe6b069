package degrade

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/redisclient"
)

// A clock of Redis that jumps is one line in the log, with its direction and by how much, and nothing else is one.
func TestAClockThatJumpsIsLogged(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration
		says  string
	}{
		{0, ""},
		{500 * time.Millisecond, ""},
		{time.Hour, "the clock of Redis went forward"},
		{-time.Hour, "the clock of Redis went back"},
	} {
		t.Run(c.ahead.String(), func(t *testing.T) {
			server, clock := redistest.StartWithClock(t)
			client, err := redisclient.New("redis://" + server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			var out bytes.Buffer
			g, err := New(client.Detached(nil), Options{Budget: 10 * time.Second, Instances: 1, Log: slog.New(slog.NewTextHandler(&out, nil))})
			if err != nil {
				t.Fatal(err)
			}
			l, err := sash.New(g.Store, nil, sash.PerHour(1000))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				if i == 50 {
					clock.Move(t, c.ahead)
				}
				if _, err := l.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			logs := out.String()
			if c.says == "" {
				if logs != "" {
					t.Errorf("logged:\n%s", logs)
				}
				return
			}
			if strings.Count(logs, "\n") != 1 || !strings.Contains(logs, c.says) || !strings.Contains(logs, " by=1h0m0") && !strings.Contains(logs, " by=59m59.") {
				t.Errorf("logged, want one line with %q and an hour:\n%s", c.says, logs)
			}
		})
	}
}

// An ahead store has a steady clock, and books every call an hour ahead.
type ahead struct{}

func (ahead) Decide(context.Context, driver.Request) (driver.Answer, error) {
	answer := driver.NewAnswer(time.Now().Add(time.Hour).UnixMicro(), 0, []driver.Status{{}})
	answer.Delay = time.Hour.Microseconds()
	return answer, nil
}

// A booking is dated ahead of the clock of Redis, which has not jumped.
func TestABookingIsNoJump(t *testing.T) {
	var out bytes.Buffer
	c := newClocked(ahead{}, func(string, *driver.Policy) int { return 0 }, slog.New(slog.NewTextHandler(&out, nil)))
	c.note(driver.Request{}, time.Now().UnixMicro(), 0)
	if _, err := c.Decide(t.Context(), driver.Request{Key: "k", Within: driver.MaxAhead}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DecideEach(t.Context(), []driver.Request{{Key: "k", Within: driver.MaxAhead}}); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 {
		t.Errorf("logged:\n%s", out.String())
	}
}

// Calls of many keys travel together through the whole chain, and a clock that jumps is noticed in their answers.
func TestManyKeysTravelTogether(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	client, err := redisclient.New("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var out bytes.Buffer
	g, err := New(client.Detached(nil), Options{Budget: 10 * time.Second, Instances: 1, Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := sash.New(g.Store, nil, sash.PerHour(1000))
	if err != nil {
		t.Fatal(err)
	}
	const callers, calls = 64, 20
	all := func(name string) int {
		before := scriptCalls(t, server)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range calls {
					if r, err := l.Allow(t.Context(), fmt.Sprint(name, i)); err != nil || !r.Allowed {
						t.Errorf("%+v, %v", r, err)
					}
				}
			})
		}
		wg.Wait()
		return scriptCalls(t, server) - before
	}
	if n := all("before"); n >= callers*calls {
		t.Errorf("%d round trips for %d calls", n, callers*calls)
	}
	clock.Move(t, time.Hour)
	all("after")
	if logs := out.String(); strings.Count(logs, "\n") != 1 || !strings.Contains(logs, "the clock of Redis went forward") {
		t.Errorf("logged:\n%s", logs)
	}
}
