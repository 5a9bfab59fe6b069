//go:build envoy

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// Envoy takes the filter that Istio inserts, and its limits hold. Only the cluster is that of a file, under the name that
// Istio gives it.
func TestRealEnvoyTakesTheFilterOfIstio(t *testing.T) {
	filter, cluster := istioFilter(t)
	p := serveConfigMap(t, manifests(t), "--budget", patience)
	config := withFilter(t, envoyConfig(t, startUpstream(t), p), filter)
	limitsAddressesAndPaths(t, startEnvoy(t, config))
	if cluster == "" {
		t.Error("no cluster")
	}
}

// serveConfigMap runs sash serve with the limits of the example, of which those of an address do not end within the test.
func serveConfigMap(t *testing.T, all map[string]manifest, args ...string) *service {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all["ConfigMap"].Data {
		put(t, filepath.Join(dir, name), edited(t, text, "5/2s", "5/1h", "1000/1m", "3/1h"))
	}
	return serve(t, append(args, "--config", dir)...)
}

// limitsAddressesAndPaths sends what the filter makes descriptors of, and counts what passes.
func limitsAddressesAndPaths(t *testing.T, e http.Handler) {
	t.Helper()
	at := func(path string, client, want int) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1234", client)
		rec := httptest.NewRecorder()
		e.ServeHTTP(rec, r)
		if rec.Code != want {
			t.Errorf("%s of client %d: %d, want %d", path, client, rec.Code, want)
		}
	}
	for range 5 {
		at("/", 1, 200)
	}
	at("/", 1, 429)
	for client := 2; client < 5; client++ {
		at("/search?q=a", client, 200)
	}
	at("/search", 5, 429)
	at("/", 5, 200)
}
