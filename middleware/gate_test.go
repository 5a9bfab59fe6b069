package middleware_test

import (
	"strconv"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/middleware"
)

type settler interface {
	driver.Store
	driver.Settler
}

// A refusal is that of the layer which refused, also where the store decides on one subject after the other and reports
// only that one.
func TestTheLayerOfARefusal(t *testing.T) {
	for name, store := range map[string]driver.Store{
		"all at once": memstore.New(nil), "one by one": struct{ settler }{memstore.New(nil)},
	} {
		limiter, err := sash.New(store, &sash.Options{Prefix: "p"}, sash.PerHour(2))
		if err != nil {
			t.Fatal(err)
		}
		byName := func(name string) (string, error) { return name, nil }
		gate, err := middleware.NewGate(limiter, []middleware.Layer[string]{
			{Name: "user", Key: byName},
			{Name: "all", Key: func(string) (string, error) { return "all", nil }, Limits: []sash.Limit{sash.PerHour(3)}},
		}, middleware.GateOptions[string]{})
		if err != nil {
			t.Fatal(err)
		}
		refusedBy := func(user string) string {
			d, err := gate.Decide(t.Context(), user)
			if err != nil {
				t.Fatal(err)
			}
			for i, limits := 0, d.Result.Limits(); i < len(limits); i++ {
				if limits[i].Refused {
					return d.LayerOf(limits, i).Name
				}
			}
			return ""
		}
		for i, want := range []string{"", "", "user", "", "all"} {
			if got := refusedBy(strconv.Itoa(i / 3)); got != want {
				t.Errorf("%s: call %d is refused by layer %q, want %q", name, i+1, got, want)
			}
		}
	}
}
