package stack_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
	"example.com/sash/stack"
)

// A Redis stops, and another starts at its address.
func TestARedisThatStopsAndStarts(t *testing.T) {
	for _, mode := range modes {
		for _, longest := range []time.Duration{0, 100 * time.Millisecond} {
			t.Run(fmt.Sprint(mode, " ", longest), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				store := redisstore.New(redistest.Scripter(redistest.Dial(server.Addr())), nil)
				s := newStack(t, store, &stack.Options{
					Failover: failover.Options{Modes: always(mode), Budget: time.Minute}, // on a machine that may be slow
					Lease:    longest,
				})
				l := newLimiter(t, s, sash.PerHour(10)) // too few units to be leased: a silent home is tested above
				if res := allow(t, l, "k"); res.Source != sash.FromStore {
					t.Fatalf("%+v", res)
				}
				server.Stop()
				res, err := l.Allow(t.Context(), "k")
				switch want := map[failover.Mode]sash.Source{failover.Local: sash.FromLocal, failover.Open: sash.FromPolicy}[mode]; {
				case mode == failover.Closed && !errors.Is(err, sash.ErrUnavailable):
					t.Errorf("%+v, %v", res, err)
				case mode != failover.Closed && (err != nil || !res.Allowed || res.Source != want):
					t.Errorf("%+v, %v; want one from the %v", res, err, want)
				}
				server.Restart()
				for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
					res, err := l.Allow(t.Context(), "another")
					if err == nil && res.Source == sash.FromStore {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("%+v, %v; the store is %v", res, err, s.State())
					}
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
