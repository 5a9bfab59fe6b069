package admin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
)

// away is a store that a test takes away.
type away struct {
	*memstore.Store
	gone atomic.Bool
}

func (a *away) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if a.gone.Load() {
		return driver.Answer{}, &sash.StoreError{Err: errors.New("LOADING Redis is loading the dataset in memory")}
	}
	return a.Store.Decide(ctx, req)
}

// outage returns a world on a store with failure modes, which can be taken away, as one of two instances.
func outage(t *testing.T) (*world, *away, *failover.Store) {
	t.Helper()
	redis := &away{Store: memstore.New(nil)}
	store, err := failover.New(redis, &failover.Options{Local: memstore.New(nil), Instances: func() int { return 2 }})
	if err != nil {
		t.Fatal(err)
	}
	w := beginOn(t, one, `
domain: d
descriptors:
- {key: closed, limits: [20/1h]}
- {key: open, limits: [20/1h], on_unavailable: open}
- {key: local, limits: [20/1h], on_unavailable: local}
`, store, func() degrade.Report {
		r := degrade.Report{Health: degrade.Health{Status: "ok", Store: store.State().String(), Instances: 2}, Address: "redis.example:6379"}
		if store.State() != failover.Up {
			r.Status, r.Cause, r.Since = "degraded", "loading", time.Now()
		}
		return r
	})
	return w, redis, store
}

// While the store is away the answer on a subject has no number that was not read: it says from whom what is known is,
// which store does not answer, and why.
func TestASubjectInAnOutage(t *testing.T) {
	w, redis, store := outage(t)
	ask := func(key string, times int) {
		for range times {
			_, _ = w.decider.Decide(t.Context(), decide.One("d", []config.Entry{{Key: key, Value: "ann"}}, nil))
		}
	}
	type answer struct {
		Limits        json.RawMessage
		Source, Cause *string
		At            *time.Time
		Store         struct{ Status, Address, Reason string }
	}
	look := func(key, value string) (now answer) {
		w.says(&now, 200, "GET", "/admin/v1/subject?domain=d&entry="+key+":"+value, "")
		return now
	}
	keys := []string{"closed", "open", "local"}
	for _, key := range keys {
		ask(key, 7)
		if now := look(key, "ann"); *now.Source != "store" || now.Cause != nil || now.At == nil || !strings.Contains(string(now.Limits), `"remaining":13,"used":7`) {
			t.Errorf("%s: %+v %s", key, now, now.Limits)
		}
	}
	redis.gone.Store(true)
	for _, key := range keys {
		ask(key, 30)
	}
	for store.State() == failover.Up { // which takes more than a moment of failures
		ask("closed", 1)
	}
	const unknown = `[{"name":"20/1h","units":20,"window":3600,"remaining":null,"used":null,"release_after":null,"reset_after":null}]`
	for _, key := range keys {
		now := look(key, "ann")
		if *now.Cause != "loading" && *now.Cause != "down" || now.Store.Status != "degraded" || now.Store.Address != "redis.example:6379" ||
			now.Store.Reason != "is loading its data" {
			t.Errorf("%s: why is %s, %+v", key, *now.Cause, now.Store)
		}
		if key == "local" {
			if *now.Source != "local" || !strings.Contains(string(now.Limits), `"remaining":0,"share":10,"used":10`) {
				t.Errorf("local: %+v %s", now, now.Limits)
			}
			continue
		}
		if *now.Source != "policy" || now.At != nil || string(now.Limits) != unknown {
			t.Errorf("%s: %+v %s", key, now, now.Limits)
		}
	}
	if now := look("open", "stranger"); string(now.Limits) != unknown {
		t.Errorf("of whom the store said nothing: %s", now.Limits)
	}
}
