package decide

import (
	"testing"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// A part of no units beside one of the same rule that is charged gets what is left, and not a guess.
func TestALookBesideLeasedUnits(t *testing.T) {
	cfg, err := config.Parse("x.yaml", []byte("domain: d\ndescriptors: [{key: a, limits: [100/10m], lease: 2s}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(cfg, memstore.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "first", ask(t, d, Together, part("a=1", 30)), "ok:70")
	want(t, "both", ask(t, d, Together, part("a=1", 0), part("a=2", 1)), "ok:70 | ok:99")
	want(t, "both, the other way round", ask(t, d, Together, part("a=1", 1), part("a=2", 0)), "ok:69 | ok:99")
}
