//go:build envoy

package main

import (
	"path/filepath"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// Envoy and Sash identify each other by certificates, as mtls.yaml has it: Envoy has its rights by its name, and neither
// talks to a stranger.
func TestRealEnvoyWithCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, key := certify(t, dir, "authority", nil, nil)
	for _, name := range []string{"sash.internal", "envoy.internal", "reader.internal", "other.internal"} {
		certify(t, dir, name, ca, key)
	}
	strange, strangeKey := certify(t, dir, "strangers", nil, nil)
	certify(t, dir, "stranger.internal", strange, strangeKey)
	rights := filepath.Join(dir, "access.yaml")
	put(t, rights, `
clients:
  - {name: envoy, certificates: [envoy.internal], allow: [decide, override], domains: [web]}
  - {name: reader, certificates: [reader.internal], allow: [decide], domains: [web]}
`)
	start := func(name string) *service {
		return serve(t, "--config", envoyExample+"/policy.yaml", "--access", rights, "--budget", patience,
			"--tls-cert", dir+"/"+name+".pem", "--tls-key", dir+"/"+name+".key", "--tls-client-ca", dir+"/authority.pem")
	}
	p, other := start("sash.internal"), start("other.internal")
	u := startUpstream(t)
	config := func(p *service, pairs ...string) string {
		tls := edited(t, edited(t, readExample(t, "mtls.yaml"), pairs...), "/etc/envoy/tls", dir)
		return envoyConfig(t, u, p) + tls
	}

	e := startEnvoy(t, config(p))
	for range 4 { // the plan of this customer, which only Envoy may set
		if res := through(e, "192.0.2.1", "x-customer", "ann"); res.Code != 200 {
			t.Errorf("with Envoy's certificate: %d", res.Code)
		}
	}
	if res := through(e, "192.0.2.1", "x-customer", "ann"); res.Code != 429 {
		t.Errorf("over the limit: %d", res.Code)
	}

	reader := startEnvoy(t, config(p, "envoy.internal", "reader.internal"))
	if res := through(reader, "192.0.2.2"); res.Code != 200 {
		t.Errorf("a client that may decide: %d", res.Code)
	}
	if res := through(reader, "192.0.2.2", "x-customer", "ann"); res.Code != 503 {
		t.Errorf("a client without the right to set a limit: %d", res.Code)
	}

	before := u.requests.Load()
	for name, wrong := range map[string]string{
		"no certificate": edited(t, config(p), "            tls_certificates:", "            ", "              - certificate_chain: {filename: "+dir+"/envoy.internal.pem}\n", "",
			"                private_key: {filename: "+dir+"/envoy.internal.key}\n", ""),
		"another authority's":     config(p, "envoy.internal", "stranger.internal"),
		"Sash has another name":   config(other),
		"Sash's authority is not": edited(t, config(p), dir+"/authority.pem", dir+"/strangers.pem"),
		"no TLS":                  envoyConfig(t, u, p),
	} {
		e := launchEnvoy(t, wrong)
		if res := through(e, "192.0.2.3"); res.Code != 503 {
			t.Errorf("%s: %d", name, res.Code)
		}
		servertest.Wait(t, name+": Envoy finds Sash healthy", func() bool {
			return e.stat("cluster.sash.health_check.failure") > 0 && e.stat("cluster.sash.membership_healthy") == 0
		})
	}
	if n := u.requests.Load() - before; n != 0 {
		t.Errorf("%d requests without a decision reached the application", n)
	}
}
