package decide

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// While the configuration and the exceptions change, requests are held to one or the other, and no subject gets more than
// the widest of them.
func TestRequestsWhileEverythingChanges(t *testing.T) {
	configs := []*config.Config{
		parse(t, "domain: d\ndescriptors:\n  - {key: k, limits: [20/1h]}\n"),
		parse(t, "domain: d\ndescriptors:\n  - {key: k, limits: [30/1h], candidate: {limits: [5/1h], enforce_percent: 50}}\n"),
		parse(t, "domain: d\ndescriptors:\n  - {key: other, limits: [1/1h]}\n  - {key: k, limits: [25/1h], shadow_mode: false}\n"),
	}
	d := newDecider(t, configs[0], memstore.New(nil))
	entries := []config.Entry{{Key: "k", Value: "ann"}}
	ctx, stop := context.WithCancel(t.Context())
	var changers, askers sync.WaitGroup
	changers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := d.Use(configs[i%len(configs)]); err != nil {
				t.Error(err)
			}
		}
	})
	changers.Go(func() {
		override := Exception{Domain: "d", Entries: entries, Limits: []sash.Limit{sash.PerHour(40)}, Until: time.Now().Add(time.Hour)}
		ban := Exception{Domain: "d", Entries: entries, Until: time.Now().Add(time.Hour)}
		for i := 0; ctx.Err() == nil; i++ {
			d.Except([][]Exception{nil, {override}, {ban}, {override, ban}}[i%4])
		}
	})
	var admitted atomic.Int64
	for range 4 {
		askers.Go(func() {
			for range 400 {
				v, err := one(t.Context(), d, One("d", entries, nil))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := d.State(t.Context(), "d", entries); err != nil {
					t.Error(err)
				}
				if v.Allowed() {
					admitted.Add(1)
				}
			}
		})
	}
	askers.Wait()
	stop()
	changers.Wait()
	if n := admitted.Load(); n > 40 || n == 0 {
		t.Errorf("%d are admitted, and no limit had more than 40", n)
	}
}
