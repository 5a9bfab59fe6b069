package admin

import (
	"net/http"
	"strings"
	"testing"

	"example.com/sash/service/internal/stats"
)

// The state has counts and the store, and subjects only for callers with the token.
func TestTheStateHidesSubjectsWithoutAccess(t *testing.T) {
	w := begin(t, one)
	for range 4 {
		w.asks("user", "ann")
	}
	var now snapshot
	w.says(&now, http.StatusOK, "GET", "/admin/v1/state", "")
	if !now.Authenticated || len(now.Top.Units) != 1 || now.Top.Units[0].Subject != "d:user:ann" || now.Top.Units[0].Count != 4 ||
		len(now.Top.Refused) != 1 || now.Top.Refused[0].Count != 1 {
		t.Errorf("the busiest are %+v", now.Top)
	}
	now, w.token = snapshot{}, ""
	w.says(&now, http.StatusOK, "GET", "/admin/v1/state", "")
	if now.Requests.Count != (stats.Counts{Allowed: 3, Refused: 1}) || len(now.Rules) != 1 || now.Rules[0].Rule != "d.user" || now.Store.Store != "memory" {
		t.Errorf("without access: %+v", now)
	}
	if now.Authenticated || now.Top != nil {
		t.Errorf("subjects without access: %+v", now.Top)
	}
}

// The page and its parts are there, and may load nothing from elsewhere.
func TestDashboard(t *testing.T) {
	w := begin(t, Access{})
	res, page := w.send("GET", "/dashboard", "")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Security-Policy"), "default-src 'self';") {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	parts := strings.Count(page, `"/dashboard/`)
	for part := range strings.SplitSeq(page, `"/dashboard/`) {
		name, _, _ := strings.Cut(part, `"`)
		if strings.HasPrefix(part, "<") {
			continue
		}
		if res, _ := w.send("GET", "/dashboard/"+name, ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if parts < 3 || strings.Contains(page, "<script>") || strings.Contains(page, "style=") || strings.Contains(page, "http://") || strings.Contains(page, "https://") {
		t.Errorf("%d parts, or something that the policy forbids: %s", parts, page)
	}
	for _, path := range []string{"/dashboard/", "/dashboard/no.js", "/dashboard/../admin.go", "/dashboard/page"} {
		if res, _ := w.send("GET", path, ""); res.StatusCode == http.StatusOK {
			t.Errorf("%s is there", path)
		}
	}
	if _, text := w.send("GET", "/", ""); !strings.Contains(text, "/dashboard") {
		t.Errorf("/ does not name the dashboard: %s", text)
	}
}
