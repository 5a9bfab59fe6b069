package decide

import (
	"context"
	"errors"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// gone is a store that cannot be reached.
type gone struct{ *memstore.Store }

func (gone) Decide(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, errors.New("connection refused")
}

func (gone) DecideOnce(context.Context, string, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, errors.New("connection refused")
}

func (gone) DecideAll(context.Context, []driver.Request) ([]driver.Answer, error) {
	return nil, errors.New("connection refused")
}

// Of several descriptors in one request the strictest mode counts, each for its own units.
func TestTheStrictestModeCounts(t *testing.T) {
	cfg, err := config.Parse("x.yaml", []byte(`
domain: d
descriptors:
- {key: open, limits: [100/1m], on_unavailable: open}
- {key: cheap, limits: [100/1m], on_unavailable: {1: open}}
- {key: local, limits: [4/1m], on_unavailable: {20: local}}
- {key: closed, limits: [100/1m]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		units    map[string]int64
		admitted int // of ten; -1 is an error
	}{
		"open":                        {map[string]int64{"open": 50}, 10},
		"open, and one unit":          {map[string]int64{"open": 50, "cheap": 1}, 10},
		"open, and more units":        {map[string]int64{"open": 50, "cheap": 2}, -1},
		"local":                       {map[string]int64{"local": 1}, 2},
		"open and local":              {map[string]int64{"cheap": 1, "local": 1}, 2},
		"open, local and closed":      {map[string]int64{"open": 1, "local": 1, "closed": 1}, -1},
		"a limit that nobody matches": {map[string]int64{"other": 1}, 10},
	} {
		store, err := failover.New(gone{memstore.New(nil)}, &failover.Options{Local: memstore.New(nil), Instances: func() int { return 2 }})
		if err != nil {
			t.Fatal(err)
		}
		d := newDecider(t, cfg, store)
		var parts []Part
		for key, units := range c.units {
			parts = append(parts, Part{Entries: []config.Entry{{Key: key, Value: "a"}}, Cost: units})
		}
		admitted := 0
		for range 10 {
			answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: parts, Lenient: true})
			if err != nil {
				if !errors.Is(err, sash.ErrUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
				admitted = -1
				break
			}
			ok := true
			for _, a := range answers {
				ok = ok && !a.Refused
			}
			if ok {
				admitted++
			}
		}
		if admitted != c.admitted {
			t.Errorf("%s: %d admitted, want %d", name, admitted, c.admitted)
		}
	}
}
