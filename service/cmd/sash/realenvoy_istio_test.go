//go:build envoy

package main

import "testing"

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
