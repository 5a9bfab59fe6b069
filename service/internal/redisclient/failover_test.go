package redisclient

import (
	"context"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

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
			l, calls := limiterOf(t, client.Store(nil)), int64(0)
			served := func() bool { // within a budget
				calls++
				budget, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, err := l.Allow(budget, "subject")
				return err == nil
			}
			servertest.Wait(t, "no call is served", served)
			fault(t, w)
			servertest.Wait(t, "the replica is not promoted", func() bool {
				served()
				reply, err := w.Replica.Do("INFO", "replication") // a server that is promoted may drop its connections
				text, _ := reply.(string)
				return err == nil && strings.Contains(text, "role:master")
			})
			promoted := time.Now()
			servertest.Wait(t, "the promoted replica is not used", served)
			if took := time.Since(promoted); took > 5*time.Second {
				t.Errorf("calls are served again %v after the promotion", took)
			}
			res, err := l.Peek(t.Context(), "subject")
			if charged := 50_000 - res.Remaining; err != nil || charged > calls {
				t.Errorf("%d units are charged for %d calls of one unit: %v", charged, calls, err)
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
