package redisclient

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

func open(t *testing.T, url string) *Client {
	t.Helper()
	client := newClient(t, url)
	t.Cleanup(client.Close)
	return client
}

func limiterOf(t *testing.T, store driver.Store) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, nil, sash.PerHour(50_000))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// guarded returns a limiter as sash serve has it: with a budget for each call.
func guarded(t *testing.T, client *Client, opts *failover.Options) (*sash.Limiter, *failover.Store) {
	t.Helper()
	store, err := failover.New(client.Detached(nil), opts)
	if err != nil {
		t.Fatal(err)
	}
	return limiterOf(t, store), store
}

// All callers share one connection. When it swallows what is sent, every caller has an answer when its budget is spent,
// and the client gives the connection up for another one. Until the breaker opens each caller begins one call in a
// budget, and from then on only probes are sent, so no more than these are under way.
func TestAConnectionThatSwallowsIsReplaced(t *testing.T) {
	server := redistest.Start(t)
	p := through(t, server.Addr())
	client := open(t, "redis://"+p.addr())
	const budget = 50 * time.Millisecond
	var began time.Time
	var opened, probes atomic.Int64 // opened is in nanoseconds since began; 0 is never
	l, store := guarded(t, client, &failover.Options{Budget: budget, OnChange: func(now failover.State, _ error) {
		switch now {
		case failover.Down:
			opened.CompareAndSwap(0, int64(time.Since(began)))
		case failover.Probing:
			probes.Add(1)
		}
	}})
	if _, err := limiterOf(t, client.Store(nil)).Allow(t.Context(), "k"); err != nil { // it knows the script now
		t.Fatal(err)
	}
	p.swallow()
	var calls, late, most atomic.Int64
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var wg sync.WaitGroup
	const callers = 64
	began = time.Now()
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, err := l.Allow(context.Background(), "k")
				calls.Add(1)
				if time.Since(began) > budget+10*time.Millisecond {
					late.Add(1)
				}
				if n := int64(store.Stats().InFlight); n > most.Load() {
					most.Store(n)
				}
				if err == nil {
					stop()
				}
				<-time.After(time.Millisecond)
			}
		})
	}
	wg.Wait()
	t.Logf("down after %v, decided again after %v and %d probes; %d calls, %d of them later than the budget and 10 ms, at most %d under way",
		time.Duration(opened.Load()), time.Since(began).Round(time.Millisecond), probes.Load(), calls.Load(), late.Load(), most.Load())
	if p.connections() < 2 || time.Since(began) > 15*time.Second {
		t.Errorf("%d connections were made within %v", p.connections(), time.Since(began))
	}
	if late.Load() > calls.Load()/10 { // a machine that is busy runs a goroutine late now and then
		t.Errorf("%d of %d answers are late", late.Load(), calls.Load())
	}
	// By Blip and Budget of failover.Options, in a process that is late itself: Blip is five times as long, and the budget
	// before the first failure and before the last is twice as long.
	const latest = 4*budget + 5*failover.DefaultBlip
	if at := time.Duration(opened.Load()); at == 0 || at > latest {
		t.Fatalf("the breaker opened after %v, or never if that is 0", at)
	}
	rounds := opened.Load()/int64(budget) + 1
	if allowed := callers*rounds + probes.Load(); most.Load() > allowed {
		t.Errorf("%d calls were under way, which is more than %d", most.Load(), allowed)
	}
}

// A caller that leaves cancels its own call and no other, on a connection with few calls or many.
func TestACallersEndBreaksNoConnection(t *testing.T) {
	server := redistest.Start(t)
	p := through(t, server.Addr())
	l := limiterOf(t, open(t, "redis://"+p.addr()).Detached(nil))
	if _, err := l.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	errs := make(chan error, 2)
	for _, ctx := range []context.Context{brief, t.Context()} {
		go func() { _, err := l.Allow(ctx, "k"); errs <- err }()
	}
	<-brief.Done()
	if _, err := l.Allow(brief, "k"); err == nil {
		t.Error("a call was made whose context had ended")
	}
	server.Resume()
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if p.connections() != 1 {
		t.Errorf("%d connections were made", p.connections())
	}
}

// The name of one server can lead to another one: a client that learns that this one is a replica resolves it again.
func TestAServerThatBecameAReplicaIsLeft(t *testing.T) {
	old, primary := redistest.Start(t), redistest.Start(t)
	p := through(t, old.Addr())
	l := limiterOf(t, open(t, "redis://"+p.addr()).Store(nil))
	if _, err := l.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	p.lead(primary.Addr())
	host, port, _ := strings.Cut(primary.Addr(), ":")
	old.Must(t, "REPLICAOF", host, port)
	began := time.Now()
	servertest.Wait(t, "the primary is not used", func() bool { _, err := l.Allow(t.Context(), "k"); return err == nil })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if p.connections() > 4 {
		t.Errorf("%d connections were made", p.connections())
	}
}

// Where rueidis creates no client while no server answers, there is a client all the same, and it works later.
func TestSentinelsAndClustersThatComeUpLater(t *testing.T) {
	watched := servertest.StartWatched(t)
	_, clusterURL := servertest.StartCluster(t)
	_, nodes, _ := strings.Cut(clusterURL, "://")
	node, _, _ := strings.Cut(nodes, ",")
	for name, c := range map[string]struct{ before, after, seed string }{
		"Sentinel": {"redis+sentinel://", "/" + watched.Sentinels.Name, watched.Sentinels.Addrs()[0]},
		"Cluster":  {"redis+cluster://", "", node},
	} {
		t.Run(name, func(t *testing.T) {
			p := through(t, "") // who connects is turned away
			client := open(t, c.before+p.addr()+c.after)
			l := limiterOf(t, client.Store(nil))
			ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer stop()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if _, err := l.Allow(ctx, "k"); err == nil {
							t.Error("decided without a server")
						}
						<-time.After(time.Millisecond)
					}
				})
			}
			wg.Wait()
			if n := p.connections(); n < 2 || n > 20 {
				t.Errorf("%d connections were tried in half a second", n)
			}
			p.lead(c.seed)
			began := time.Now()
			servertest.Wait(t, "nothing is decided", func() bool { _, err := l.Allow(t.Context(), "k"); return err == nil })
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A client that was closed, or is closed while it connects, leaves nothing behind: TestMain looks.
func TestACloseWhileConnecting(t *testing.T) {
	server := redistest.Start(t)
	server.Pause()
	client := newClient(t, "redis://"+server.Addr())
	ended := make(chan error, 1)
	go func() { ended <- client.Ping(context.Background()) }()
	<-time.After(10 * time.Millisecond)
	client.Close()
	if err := <-ended; err == nil {
		t.Error("a server answered that hangs")
	}
	server.Resume()
	if err := client.Ping(t.Context()); err == nil {
		t.Error("a client that was closed works")
	}
}
