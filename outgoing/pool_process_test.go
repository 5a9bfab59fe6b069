package outgoing_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// Three processes share a pool of six tokens, each with a quota that the API enforces exactly. One is revoked in between.
// No token gets a 429, all serve, the revoked one is dropped by all, and Redis has no token.
func TestThreeProcessesShareAPool(t *testing.T) {
	const limit, window, long = 15, 2 * time.Second, 12 * time.Second
	redis, all := redistest.Start(t), tokens(6)
	api := newTokenAPI(limit, window, all...)
	server := httptest.NewServer(api)
	defer server.Close()
	job := errand{Redis: redis.Addr(), API: server.URL, Workers: 4, For: long, Limit: sash.Every(limit, window), Tokens: all, Spread: window / 4}
	time.AfterFunc(long/2, func() { api.revoke(all[3], true) })
	statuses := map[int]int{}
	for _, r := range start(t, job, job, job) {
		for status, n := range r.Status {
			statuses[status] += n
		}
	}
	if refused := api.sum(api.refused); refused != 0 || statuses[http.StatusOK] == 0 || len(statuses) != 1 {
		t.Errorf("the API refused %d requests; the processes got %v", refused, statuses)
	}
	if n := api.denied[all[3]]; n < 1 || n > 12 { // each worker may have a request under way
		t.Errorf("the revoked token was sent %d times", n)
	}
	// N for each W + δ, for six tokens and then five.
	least := int(float64(limit) * 5.5 * float64(long-window) / float64(window+window/4))
	if n := statuses[http.StatusOK]; n < least {
		t.Errorf("%d requests were served, want at least %d", n, least)
	}
	for token, n := range api.served {
		if token != all[3] && n < least/12 {
			t.Errorf("a token served %d requests: %v", n, api.served)
		}
	}
	t.Logf("served %v, denied %v", api.served, api.denied)
	contents := dump(t, redis)
	if !strings.Contains(contents, "credential:") || strings.Contains(contents, "S3cr3t") {
		t.Errorf("Redis has %q", contents)
	}
}

// dump returns all keys of a server, and their values.
func dump(t *testing.T, server *redistest.Server) string {
	var all strings.Builder
	keys, _ := server.Must(t, "KEYS", "*").([]any)
	for _, key := range keys {
		value, _ := server.Must(t, "GET", key.(string)).(string)
		all.WriteString(key.(string) + " " + value + "\n")
	}
	return all.String()
}
