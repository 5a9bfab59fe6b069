package redisclient

import (
	"context"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// A caller asks for one unit after the other.
type caller struct {
	limiter *sash.Limiter
	calls   int64
}

// served reports whether a call gets an answer within a budget.
func (c *caller) served(t *testing.T) bool {
	c.calls++
	budget, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.limiter.Allow(budget, "subject")
	return err == nil
}

// A client notices the failover of a primary within five seconds, and charges no call twice.
func TestFailoverBySentinelIsNoticed(t *testing.T) {
	for name, fault := range map[string]func(*testing.T, *servertest.Watched){
		"the primary is killed": func(_ *testing.T, w *servertest.Watched) { w.Primary.Stop() },
		"the primary hangs, and with it the Sentinel that the client listens to": func(t *testing.T, w *servertest.Watched) {
			listened(t, w).Pause()
			w.Primary.Pause()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := servertest.StartWatched(t)
			client := newClient(t, w.URL())
			defer client.Close()
			c := &caller{limiter: limiterOf(t, client.Store(nil))}
			servertest.Wait(t, "no call is served", func() bool { return c.served(t) })
			fault(t, w)
			servertest.Wait(t, "the replica is not promoted", func() bool {
				c.served(t)
				reply, err := w.Replica.Do("INFO", "replication") // a server that is promoted may drop its connections
				text, _ := reply.(string)
				return err == nil && strings.Contains(text, "role:master")
			})
			promoted := time.Now()
			servertest.Wait(t, "the promoted replica is not used", func() bool { return c.served(t) })
			if took := time.Since(promoted); took > 5*time.Second {
				t.Errorf("calls are served again %v after the promotion", took)
			}
			res, err := c.limiter.Peek(t.Context(), "subject")
			if charged := 50_000 - res.Remaining; err != nil || charged > c.calls {
				t.Errorf("%d units are charged for %d calls of one unit: %v", charged, c.calls, err)
			}
		})
	}
}

// listened returns the Sentinel that a client listens to.
func listened(t testing.TB, w *servertest.Watched) *redistest.Server {
	t.Helper()
	for _, s := range w.Sentinels.Servers {
		for line := range strings.Lines(s.Must(t, "CLIENT", "LIST").(string)) {
			if strings.Contains(line, " sub=") && !strings.Contains(line, " sub=0 ") {
				return s
			}
		}
	}
	t.Fatal("no Sentinel is listened to")
	return nil
}
