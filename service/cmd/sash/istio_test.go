package main

import (
	"fmt"
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

// The filter that Istio inserts stands before the router, and its cluster is the Service.
func TestTheFilterOfIstio(t *testing.T) {
	all := manifests(t)
	_, cluster := istioFilter(t)
	service := all["Service"]
	if want := fmt.Sprintf("outbound|8081||%s.%s.svc.cluster.local", service.Metadata.Name, service.Metadata.Namespace); cluster != want {
		t.Errorf("the cluster is %s, want %s", cluster, want)
	}
}
