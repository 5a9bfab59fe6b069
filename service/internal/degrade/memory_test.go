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
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// Log and health report a memory that is nearly full, and full, once and for as long as that lasts.
func TestAFullMemoryIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := NewMemory(memstore.Options{MaxKeys: 100}, slog.New(slog.NewTextHandler(&out, nil)))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		if _, err := m.Place(config.Place{Global: true}); !errors.Is(err, config.ErrNoHome) {
			t.Errorf("memory is a home: %v", err)
		}
		store, err := m.Place(config.Place{Lease: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l := limiterOf(t, store, sash.PerHour(10))
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
				t.Errorf("%+v, and logged %d and %d times:\n%s", h, nearly, evicting, &out)
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
