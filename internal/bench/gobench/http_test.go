package gobench

import (
	"net/http"
	"testing"
)

// Every middleware admits and reports, so that all do the same work.
func TestMiddlewaresAdmitAndReport(t *testing.T) {
	for _, m := range middlewares() {
		serve, last := m.serving()
		n := testing.AllocsPerRun(100, serve)
		t.Logf("%s: %v allocations a request", m.name, n)
		fields := len(last.header)
		if last.status != http.StatusNoContent || fields == 0 && m.name != "httplimit, one limit, no fields" {
			t.Errorf("%s: status %d with the fields %v", m.name, last.status, last.header)
		}
	}
}
