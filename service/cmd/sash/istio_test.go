package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// istioFilter returns the filter that the EnvoyFilter of the example has Istio insert, in YAML, without its name, type and
// service, and with time for a busy machine. It stands where a request's descriptors are made, before the router.
func istioFilter(t *testing.T) (filter, cluster string) {
	t.Helper()
	text := readFile(t, kubernetes+"/istio/envoyfilter.yaml")
	var m struct {
		Spec struct {
			Patches []struct {
				ApplyTo string `yaml:"applyTo"`
				Match   struct {
					Listener struct {
						FilterChain struct {
							Filter struct {
								SubFilter struct{ Name string } `yaml:"subFilter"`
							}
						} `yaml:"filterChain"`
					}
				}
				Patch struct {
					Operation string
					Value     struct {
						Name   string
						Config map[string]any `yaml:"typed_config"`
					}
				}
			} `yaml:"configPatches"`
		}
	}
	if err := yaml.Unmarshal(text, &m); err != nil || len(m.Spec.Patches) != 1 {
		t.Fatal(m, err)
	}
	p := m.Spec.Patches[0]
	if before := p.Match.Listener.FilterChain.Filter.SubFilter.Name; p.ApplyTo != "HTTP_FILTER" || p.Patch.Operation != "INSERT_BEFORE" || before != "envoy.filters.http.router" {
		t.Errorf("%s %s %s", p.ApplyTo, p.Patch.Operation, before)
	}
	if p.Patch.Value.Name != "envoy.filters.http.ratelimit" || p.Patch.Value.Config["@type"] != "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit" {
		t.Errorf("the filter is %s, %v", p.Patch.Value.Name, p.Patch.Value.Config["@type"])
	}
	grpc := p.Patch.Value.Config["rate_limit_service"].(map[string]any)["grpc_service"].(map[string]any)["envoy_grpc"].(map[string]any)
	config := p.Patch.Value.Config
	delete(config, "@type")
	config["timeout"] = "20s"
	out, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), grpc["cluster_name"].(string)
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

// The filter that Istio inserts has its limits in the configuration beside it, and its cluster is the Service.
func TestTheFilterOfIstio(t *testing.T) {
	all := manifests(t)
	filter, cluster := istioFilter(t)
	service := all["Service"]
	if want := fmt.Sprintf("outbound|8081||%s.%s.svc.cluster.local", service.Metadata.Name, service.Metadata.Namespace); cluster != want {
		t.Errorf("the cluster is %s, want %s", cluster, want)
	}
	limitsAddressesAndPaths(t, serveConfigMap(t, all, "--budget", "10s").envoy(t, filter))
}
