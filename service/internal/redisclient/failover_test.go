package redisclient

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// A load asks for one unit after the other of each of its keys, within a budget each, until it ends.
type load struct {
	limiter           *sash.Limiter
	keys              []string
	admitted, unknown atomic.Int64
	recovered         chan struct{} // closed when every key was admitted after mark
	mark              atomic.Int64
	stop              context.CancelFunc
	ended             chan struct{}
}

const plenty = 1_000_000

func start(t *testing.T, client *Client) *load {
	t.Helper()
	limiter, err := sash.New(client.Store(nil), &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: time.Second}, sash.Every(plenty, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{limiter: limiter, stop: cancel, ended: make(chan struct{}), recovered: make(chan struct{})}
	for i := range 12 {
		l.keys = append(l.keys, fmt.Sprint("subject", i))
	}
	t.Cleanup(cancel)
	go l.run(ctx)
	return l
}

func (l *load) run(ctx context.Context) {
	defer close(l.ended)
	again := make(map[string]bool)
	for n := 0; ctx.Err() == nil; n++ {
		key := l.keys[n%len(l.keys)]
		began := time.Now().UnixNano()
		budget, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := l.limiter.Allow(budget, key)
		cancel()
		if err != nil {
			l.unknown.Add(1)
			<-time.After(5 * time.Millisecond)
			continue
		}
		l.admitted.Add(1)
		if mark := l.mark.Load(); mark > 0 && began > mark && !again[key] {
			again[key] = true
			if len(again) == len(l.keys) {
				close(l.recovered)
			}
		}
		if n%100 == 0 {
			<-time.After(time.Millisecond)
		}
	}
}

// notices fails the test when not every key is admitted again within five seconds from now, or when more was
// charged than there were calls.
func (l *load) notices(t *testing.T) {
	t.Helper()
	promoted := time.Now()
	l.mark.Store(promoted.UnixNano())
	select {
	case <-l.recovered:
		t.Logf("all keys are served again after %v; %d calls without an answer", time.Since(promoted).Round(time.Millisecond), l.unknown.Load())
	case <-time.After(5 * time.Second):
		t.Errorf("five seconds after the promotion not every key is served")
	}
	l.stop()
	<-l.ended
	var charged int64
	for _, key := range l.keys {
		var res sash.Result
		servertest.Wait(t, "the charges of "+key+" cannot be read", func() (ok bool) {
			var err error
			res, err = l.limiter.Peek(t.Context(), key) // a cluster can be down for a moment again
			return err == nil
		})
		charged += plenty - res.Remaining
	}
	if calls := l.admitted.Load() + l.unknown.Load(); charged > calls {
		t.Errorf("%d units are charged for %d calls of one unit", charged, calls)
	}
}

// warm waits until calls are served.
func (l *load) warm(t *testing.T) {
	t.Helper()
	servertest.Wait(t, "no call is served", func() bool { return l.admitted.Load() > 200 })
}

func promoted(t *testing.T, s *redistest.Server) {
	t.Helper()
	servertest.Wait(t, "the replica is not promoted", func() bool {
		reply, err := s.Do("INFO", "replication") // a server that is promoted may drop its connections
		text, _ := reply.(string)
		return err == nil && strings.Contains(text, "role:master")
	})
}

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
			l := start(t, client)
			l.warm(t)
			fault(t, w)
			promoted(t, w.Replica)
			l.notices(t)
		})
	}
}

// A server that comes up later is used, without a new client.
func TestAServerThatComesUpLater(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	client := newClient(t, server.Addr())
	defer client.Close()
	l := start(t, client)
	servertest.Wait(t, "calls do not fail", func() bool { return l.unknown.Load() > 50 })
	server.Restart()
	l.notices(t)
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
