package servicebench

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
)

// Without the other service's binary the page says so, and with a wrong one nothing is measured.
func TestTheOriginalIsNamedByAVariable(t *testing.T) {
	r := report.New(report.Config{ClientRounds: 1}, io.Discard)
	t.Setenv(originalVariable, "")
	beside, err := compare(r, "sash")
	if err != nil || !strings.Contains(beside, "Not measured: RLS_BIN") {
		t.Errorf("without a binary: %v, error %v", beside, err)
	}
	t.Setenv(originalVariable, filepath.Join(t.TempDir(), "ratelimit"))
	if _, err := compare(r, "sash"); err == nil || !strings.Contains(err.Error(), originalVariable) {
		t.Errorf("with a binary that is not there: error %v", err)
	}
}

// Targets are ratios within the rounds, of decisions and of the processor time of service and Redis together.
func TestTargetsBesideTheOriginal(t *testing.T) {
	rows := func(perSecond, service, redis float64) []*row {
		one := &row{figures: load.Figures{PerSecond: report.Figure{perSecond}, Used: []report.Figure{{service}, {redis}}}}
		return []*row{one, one, one}
	}
	r := report.New(report.Config{}, io.Discard)
	judge(r, rows(2000, 30, 10), rows(1000, 80, 20))
	page, err := r.Page("{{.Targets}}", map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"decisions/s, many keys, 64 in flight over gRPC, sash serve : Envoy's service | ≥ 1.8 | 2.00 | yes",
		"processor time of service and Redis, many keys, 64 in flight over gRPC, sash serve : Envoy's service | ≤ 0.5 | 0.4 | yes",
		"decisions/s, hot key, 64 in flight over gRPC, sash serve : Envoy's service | ≥ 3 | 2.00 | no",
		"processor time of service and Redis, hot key, 64 in flight over gRPC, sash serve : Envoy's service | ≤ 0.25 | 0.4 | no",
	} {
		if !strings.Contains(strings.Join(strings.Fields(page), " "), want) {
			t.Errorf("no row %q in\n%s", want, page)
		}
	}
}
