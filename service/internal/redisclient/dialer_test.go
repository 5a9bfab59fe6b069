package redisclient

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/servertest"
)

// fake is a network whose addresses can be down; it counts what is dialled.
type fake struct {
	down  bool
	dials int
}

func (f *fake) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.dials++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f.down {
		return nil, errors.New("refused")
	}
	a, b := net.Pipe()
	_ = b.Close()
	return a, nil
}

func TestAServerThatCannotBeReachedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &fake{down: true}
		d := newDialer(time.Second, nil)
		d.dial = network.dial
		// Two callers a millisecond for a minute, while the server is away.
		var gaps []time.Duration
		last := time.Now()
		for range 60_000 {
			for range 2 {
				before := network.dials
				if _, err := d.Dial(t.Context(), "tcp", "a"); err == nil {
					t.Fatal("connected to a server that is away")
				}
				if network.dials > before {
					gaps = append(gaps, time.Since(last))
					last = time.Now()
				}
			}
			time.Sleep(time.Millisecond)
		}
		if network.dials < 60 || network.dials > 140 {
			t.Errorf("%d connections were tried within a minute", network.dials)
		}
		distinct := map[time.Duration]bool{}
		for _, gap := range gaps[8:] {
			distinct[gap] = true
			if gap < longestPause/2 || gap > longestPause+2*time.Millisecond {
				t.Errorf("the next one is tried after %v", gap)
			}
		}
		if len(distinct) < 20 {
			t.Errorf("pauses have %d different lengths: no jitter", len(distinct))
		}
		network.down = false
		time.Sleep(longestPause)
		if _, err := d.Dial(t.Context(), "tcp", "a"); err != nil {
			t.Errorf("the server is back: %v", err)
		}
		network.down = true
		if _, err := d.Dial(t.Context(), "tcp", "a"); err == nil || err.Error() != "refused" {
			t.Errorf("the first failure after a success is a pause already: %v", err)
		}
		if _, err := d.Dial(t.Context(), "tcp", "b"); err == nil || err.Error() != "refused" {
			t.Errorf("another address pays for the first: %v", err)
		}
	})
}

func TestACallerThatGivesUpTripsNothing(t *testing.T) {
	network := &fake{}
	d := newDialer(time.Second, nil)
	d.dial = network.dial
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Dial(ctx, "tcp", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, err := d.Dial(t.Context(), "tcp", "a"); err != nil {
		t.Errorf("the next caller: %v", err)
	}
}

func TestOneCallerAtATimeFindsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		d := newDialer(time.Second, nil)
		d.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			<-ctx.Done() // a black hole
			return nil, ctx.Err()
		}
		_, _ = d.Dial(t.Context(), "tcp", "a")
		time.Sleep(longestPause)
		dials = 0
		began := time.Now()
		for range 50 {
			go func() { _, _ = d.Dial(t.Context(), "tcp", "a") }()
		}
		synctest.Wait()
		if dials != 1 || time.Since(began) != 0 {
			t.Errorf("%d callers dial at once", dials)
		}
		time.Sleep(2 * time.Second)
	})
}

func open(t *testing.T, url string) *Client {
	t.Helper()
	client := newClient(t, url)
	t.Cleanup(client.Close)
	return client
}

func limiterOf(t *testing.T, store driver.Store) *sash.Limiter {
	t.Helper()
	return servertest.Must(sash.New(store, nil, sash.PerHour(50_000)))(t)
}

// A caller that leaves cancels its own call and no other, on a connection with few calls or many.
func TestACallersEndBreaksNoConnection(t *testing.T) {
	server := redistest.Start(t)
	p := through(t, server.Addr())
	l := limiterOf(t, open(t, "redis://"+p.addr()).Detached(nil))
	_ = servertest.Must(l.Allow(t.Context(), "k"))(t)
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
	_ = servertest.Must(l.Allow(t.Context(), "k"))(t)
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
func TestServersThatComeUpLater(t *testing.T) {
	watched := servertest.StartWatched(t)
	_, clusterURL := servertest.StartCluster(t)
	_, nodes, _ := strings.Cut(clusterURL, "://")
	node, _, _ := strings.Cut(nodes, ",")
	for name, c := range map[string]struct{ before, after, seed string }{
		"a server": {"redis://", "", redistest.Start(t).Addr()},
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

// A decision with replicas counts their confirmations on the connection of its script.
func TestAnAdmissionIsOnItsReplicas(t *testing.T) {
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary.Addr())
	client := open(t, "redis://"+primary.Addr())
	confirmed := func(n int) error {
		store := client.Detached(&redisstore.Options{Replicas: n, ReplicaTimeout: 500 * time.Millisecond})
		_, err := limiterOf(t, store).Allow(t.Context(), "k")
		return err
	}
	if err := confirmed(1); err != nil {
		t.Error(err)
	}
	replica.Stop()
	if err := confirmed(1); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("without its replica: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := limiterOf(t, client.Detached(&redisstore.Options{Replicas: 1})).Allow(ended, "k"); err == nil {
		t.Error("a call was made whose context had ended")
	}
	client.Close()
	if err := confirmed(1); err == nil {
		t.Error("a closed client decided")
	}
}

// A client that holds a budget gets the answer that comes within it, however long that is. A URL that does not is an error.
func TestAClientHoldsTheBudget(t *testing.T) {
	server := redistest.Start(t)
	client := open(t, "redis://"+server.Addr())
	servertest.Check(t, client.Hold(4*time.Second))
	l := limiterOf(t, client.Detached(nil))
	_ = servertest.Must(l.Allow(t.Context(), "k"))(t)
	server.Pause()
	time.AfterFunc(2500*time.Millisecond, server.Resume) // without it the client gives up after 1.9 s
	if _, err := l.Allow(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	short := open(t, "redis://"+server.Addr()+"?read_timeout=2s")
	if err := short.Hold(time.Second); err != nil {
		t.Error(err)
	}
	if err := short.Hold(2 * time.Second); err == nil || !strings.Contains(err.Error(), "read_timeout=2s") {
		t.Errorf("a budget that the URL does not hold: %v", err)
	}
}
