package degrade

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/redistest"
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
