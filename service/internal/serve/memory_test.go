package serve

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

// A flood of new subjects frees no caller that is refused, and an operator sees that the memory is full.
func TestAFloodOfSubjectsFreesNoRefusedCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	rules := "domain: d\ndescriptors:\n- {key: login, limits: [3/1h]}\n- {key: page, limits: [1000/1d]}\n"
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	const most = 500
	at, stop := start(t, Options{Config: config.Source{Path: path}, Admin: "127.0.0.1:0", Memory: memstore.Options{MaxKeys: most}})
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	read := func(res *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	get := func(addr fmt.Stringer, path string) string {
		_, text := read(client.Get("http://" + addr.String() + path)) //nolint:bodyclose // read closes it
		return text
	}
	ask := func(key, value string) int {
		//nolint:bodyclose // read closes it
		status, _ := read(client.Post("http://"+at.HTTP.String()+"/v1/allow", "application/json",
			strings.NewReader(fmt.Sprintf(`{"domain":"d","entries":[{"key":%q,"value":%q}]}`, key, value))))
		return status
	}
	for range 4 {
		ask("login", "victim")
	}
	for i := range most / 2 {
		ask("page", fmt.Sprint(i))
	}
	if text := get(at.HTTP, "/healthz"); !strings.Contains(text, `"status":"ok"`) {
		t.Error(text)
	}
	for i := range 4 * most {
		if status := ask("page", fmt.Sprint("stranger ", i)); status != http.StatusOK {
			t.Fatalf("a new subject got %d", status)
		}
	}
	if status := ask("login", "victim"); status != http.StatusTooManyRequests {
		t.Errorf("the refused caller got %d", status)
	}
	if text := get(at.HTTP, "/healthz"); !strings.Contains(text, `"status":"degraded","store":"memory","cause":"full"`) {
		t.Error(text)
	}
	metrics := get(at.Admin, "/metrics")
	for _, line := range []string{
		"sash_memory_subjects 500", "sash_memory_max_subjects 500", "sash_memory_evicted_total 1751",
		"sash_memory_turned_away_total 0", "sash_store_up 1",
	} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("no %q in the metrics", line)
		}
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
