package degrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

func memoryOf(t *testing.T, opts MemoryOptions) (*Memory, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	opts.Log = slog.New(slog.NewTextHandler(&out, nil))
	m, err := NewMemory(opts)
	if err != nil {
		t.Fatal(err)
	}
	return m, &out
}

// Log and health report a memory that is nearly full, and full, once and for as long as that lasts.
func TestAFullMemoryIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, out := memoryOf(t, MemoryOptions{Store: memstore.Options{MaxKeys: 100}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		l, err := sash.New(m, nil, sash.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		grow := func(n int) {
			t.Helper()
			for range n {
				if _, err := l.Allow(ctx, fmt.Sprint(next)); err != nil {
					t.Fatal(err)
				}
				next++
			}
			time.Sleep(2 * occupancyEvery)
			synctest.Wait()
		}
		check := func(status, cause string, warnings, full int) {
			t.Helper()
			nearly, evicting := strings.Count(out.String(), "nearly full"), strings.Count(out.String(), "memory is full")
			if h := m.Health(); h.Status != status || h.Cause != cause || h.Store != "memory" || nearly != warnings || evicting != full {
				t.Errorf("%+v, and logged %d and %d times:\n%s", h, nearly, evicting, out)
			}
		}
		grow(79)
		check("ok", "", 0, 0)
		grow(1)
		check("ok", "", 1, 0)
		grow(20)
		check("ok", "", 1, 0)
		grow(1)
		check("degraded", "full", 1, 1)
		for range 10 {
			grow(10)
		}
		check("degraded", "full", 1, 1)
		time.Sleep(fullFor + time.Second)
		synctest.Wait()
		check("ok", "", 1, 1)
		grow(5)
		check("degraded", "full", 1, 2)
		if r := m.Report(); r.Memory.Keys != 100 || r.Memory.Evicted != 106 || time.Since(r.Since) > 3*time.Second {
			t.Errorf("%+v, %+v", r, r.Memory)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// New subjects of a full memory are answered by the failure modes of their limits; those that it holds are decided.
func TestModesAnswerForAFullMemory(t *testing.T) {
	var failures []error
	m, _ := memoryOf(t, MemoryOptions{
		Store: memstore.Options{MaxKeys: 1}, OpenPerSecond: 5,
		Failed: func(err error) { failures = append(failures, err) },
	})
	tight, err := sash.New(m.Store, nil, sash.PerHour(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tight.Allow(t.Context(), "held"); err != nil { // it has no unit left, and so it is not evicted
		t.Fatal(err)
	}
	for mode, want := range map[failover.Mode]bool{failover.Open: true, failover.Closed: false, failover.Local: false} {
		store, err := m.With(failover.Modes{Rules: []failover.Rule{{Mode: mode}}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := sash.New(store, nil, sash.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		if res, err := l.Allow(t.Context(), "held"); err != nil || res.Source != sash.FromStore {
			t.Errorf("%v: %+v, %v", mode, res, err)
		}
		failures = nil
		one, err := l.Allow(t.Context(), "new")
		once, errOnce := l.AllowOnce(t.Context(), "new", "id", 1)
		all, errAll := l.AllowAll(t.Context(), sash.Subject{Key: "held", Cost: 1}, sash.Subject{Key: "new", Cost: 1})
		for _, answer := range []struct {
			allowed bool
			cause   error
			err     error
		}{{one.Allowed, one.Cause, err}, {once.Allowed, once.Cause, errOnce}, {all.Allowed, nil, errAll}} {
			if answer.allowed != want || want != (answer.err == nil) || !want && !errors.Is(answer.err, sash.ErrUnavailable) {
				t.Errorf("%v: %v, %v, %v", mode, answer.allowed, answer.cause, answer.err)
			}
		}
		if len(failures) != 3 || !errors.Is(failures[0], memstore.ErrFull) || want && !errors.Is(one.Cause, memstore.ErrFull) {
			t.Errorf("%v: %v and %v", mode, failures, one.Cause)
		}
	}
	open, err := m.With(failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := sash.NewPolicy(nil, sash.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Decide(t.Context(), driver.Request{Key: "new", Cost: 6, Policy: policy}); !errors.Is(err, failover.ErrCeiling) {
		t.Errorf("above the ceiling: %v", err)
	}
}
