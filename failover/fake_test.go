package failover_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

var (
	errBroken  = syscall.EPIPE
	errRefused = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
)

// A fake is a store whose calls do first what a test says.
type fake struct {
	*memstore.Store

	mu    sync.Mutex
	do    func(ctx context.Context) error // guarded by mu: nil is nothing
	calls int                             // guarded by mu
	most  int                             // guarded by mu: calls at once
	now   int                             // guarded by mu
}

func newFake() *fake { return &fake{Store: memstore.New(nil)} }

// becomes makes the store do f before each call from now on. With an error the call is not made.
func (s *fake) becomes(f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do, s.calls, s.most = f, 0, 0
}

func (s *fake) seen() (calls, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.most
}

func (s *fake) enter(ctx context.Context) error {
	s.mu.Lock()
	s.calls++
	s.now++
	s.most = max(s.most, s.now)
	do := s.do
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if do == nil {
		return nil
	}
	return do(ctx)
}

func (s *fake) Do(ctx context.Context, b *driver.Batch) error {
	if op := &b.Ops[0]; op.Kind == driver.Charge || op.Kind == driver.Settle {
		if err := s.enter(ctx); err != nil {
			return err
		}
	}
	return s.Store.Do(ctx, b)
}

// What a store can do wrong.
func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func hangs(d time.Duration) func(context.Context) error { // whatever its context says
	return func(context.Context) error {
		<-time.After(d)
		return nil
	}
}

func stalls(ctx context.Context) error { // until its context ends
	<-ctx.Done()
	return ctx.Err()
}

// guarded returns a store before a fake. A nil opts gets a local store.
func guarded(t *testing.T, inner driver.Store, opts failover.Options) *failover.Store {
	t.Helper()
	if opts.Local == nil {
		opts.Local = memstore.New(nil)
	}
	store := failover.Must(failover.New(inner, &opts))(t)
	t.Cleanup(func() { // ends the goroutine that writes the backlog
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = store.Close(over)
	})
	return store
}

func always(mode failover.Mode) failover.Modes {
	return failover.Modes{Rules: []failover.Rule{{Mode: mode}}}
}

func four() int { return 4 }

// bringDown takes a store down by asking, and bringBack brings it back.
func bringDown(t *testing.T, inner *fake, store *failover.Store) {
	t.Helper()
	inner.becomes(fails(errRefused))
	l := newLimiter(t, store, nil, sash.PerHour(1000))
	for range 5 {
		_, _ = l.Allow(t.Context(), "to bring it down")
		time.Sleep(failover.DefaultBlip / 4)
	}
	if store.State() != failover.Down {
		t.Fatalf("the store is %v after five failures", store.State())
	}
}

func bringBack(t *testing.T, inner *fake, store *failover.Store) {
	t.Helper()
	inner.becomes(nil)
	time.Sleep(5 * time.Second)
	l := newLimiter(t, store, nil, sash.PerHour(1000))
	if _, err := l.Peek(t.Context(), "to bring it back"); err != nil || store.State() != failover.Up {
		t.Fatalf("the store is %v after a probe: %v", store.State(), err)
	}
}

func allow(t *testing.T, l *sash.Limiter, key string, cost int64) sash.Result {
	t.Helper()
	return failover.Must(l.AllowN(t.Context(), key, cost))(t)
}

// admit asks for single units and returns how many were admitted.
func admit(t *testing.T, l *sash.Limiter, key string, calls int) (admitted int) {
	t.Helper()
	for range calls {
		if allow(t, l, key, 1).Allowed {
			admitted++
		}
	}
	return admitted
}

// look asks about a subject and charges nothing.
func look(t *testing.T, l *sash.Limiter) {
	t.Helper()
	_ = failover.Must(l.Peek(t.Context(), "another"))(t)
}

// inFour are the options of one of four processes, in mode Local.
var inFour = failover.Options{Modes: always(failover.Local), Instances: four}

// outage returns a fake, a store before it, and a limiter over that.
func outage(t *testing.T, opts failover.Options, limits ...sash.Limit) (*fake, *failover.Store, *sash.Limiter) {
	t.Helper()
	inner := newFake()
	store := guarded(t, inner, opts)
	return inner, store, newLimiter(t, store, nil, limits...)
}
