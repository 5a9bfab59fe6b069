package decide

import (
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// While the configuration and the exceptions change, requests are held to one or the other, and no subject gets more than
// the widest of them.
func TestRequestsWhileEverythingChanges(t *testing.T) {
	parse := func(text string) *config.Config {
		t.Helper()
		cfg := parse(t, text)
		return cfg
	}
	configs := []*config.Config{
		parse("domain: d\ndescriptors:\n  - {key: k, limits: [20/1h]}\n"),
		parse("domain: d\ndescriptors:\n  - {key: k, limits: [30/1h], candidate: {limits: [5/1h], enforce_percent: 50}}\n"),
		parse("domain: d\ndescriptors:\n  - {key: other, limits: [1/1h]}\n  - {key: k, limits: [25/1h], shadow_mode: false}\n"),
	}
	d := newDecider(t, configs[0], memstore.New(nil))
	entries := []config.Entry{{Key: "k", Value: "ann"}}
	done := make(chan struct{})
	var changers, askers sync.WaitGroup
	changers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := d.Use(configs[i%len(configs)]); err != nil {
				t.Error(err)
			}
		}
	})
	changers.Go(func() {
		override := Exception{Domain: "d", Entries: entries, Limits: []sash.Limit{sash.PerHour(40)}, Until: time.Now().Add(time.Hour)}
		ban := Exception{Domain: "d", Entries: entries, Until: time.Now().Add(time.Hour)}
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			d.Except([][]Exception{nil, {override}, {ban}, {override, ban}}[i%4])
		}
	})
	var mu sync.Mutex
	admitted := 0
	for range 4 {
		askers.Go(func() {
			for range 200 {
				v, err := one(t.Context(), d, One("d", entries, nil))
				if err != nil {
					t.Error(err)
					return
				}
				answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{{Entries: entries, Cost: 1}}, Lenient: true})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := d.State(t.Context(), "d", entries); err != nil {
					t.Error(err)
				}
				mu.Lock()
				if v.Allowed() {
					admitted++
				}
				if !answers[0].Refused {
					admitted++
				}
				mu.Unlock()
			}
		})
	}
	askers.Wait()
	close(done)
	changers.Wait()
	if admitted > 40 || admitted == 0 {
		t.Errorf("%d are admitted, and no limit had more than 40", admitted)
	}
}
