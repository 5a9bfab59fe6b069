package doctor

import (
	"strings"
	"testing"
	"time"
)

func TestLeasesAndTheWayToTheHome(t *testing.T) {
	v := &visit{way: 150 * time.Millisecond}
	v.leases([]Lease{{"long", 600 * time.Millisecond}, {"short", 599 * time.Millisecond}, {"exact", 299 * time.Millisecond}})
	for i, want := range []struct {
		level    Level
		seen, do string
	}{
		{Warn, "short: a lease of 599ms is shorter than four trips", "lease: 601ms"},
		{Warn, "exact: a lease of 299ms is shorter than two trips", "lease: 601ms"},
		{OK, "leases from 601ms on fit a way of 150ms", ""},
	} {
		if f := v.findings[i]; f.Level != want.level || !strings.Contains(f.Seen, want.seen) || !strings.Contains(f.Do, want.do) {
			t.Errorf("%+v, want %+v", f, want)
		}
	}
	if len(v.findings) != 3 {
		t.Errorf("%d findings", len(v.findings))
	}
}
