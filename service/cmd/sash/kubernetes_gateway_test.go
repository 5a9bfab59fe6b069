//go:build kubernetes

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// gatewayConfigs returns the configurations of a file, as Envoy Gateway makes them of policies.
func gatewayConfigs(t *testing.T, file string) (all []proto.Message) {
	t.Helper()
	text := readFile(t, file)
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var tree any
		if err := documents.Decode(&tree); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(file, err)
		}
		text, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(file, err)
		}
		config := &rls.RateLimitConfig{}
		// The file has defaults that the protocol does not have.
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, config); err != nil {
			t.Fatal(file, err)
		}
		all = append(all, config)
	}
}

// Sash starts with the command, the variables and the certificates of the rate limit service that Envoy Gateway runs, is
// well by its probes, takes each configuration that Envoy Gateway has in its own tests, and decides by it over TLS.
func TestKubernetesInPlaceOfTheServiceOfEnvoyGateway(t *testing.T) {
	theirs := os.Getenv("KUBERNETES_DIR") + "/envoy-gateway"
	text := readFile(t, theirs+"/default.yaml")
	var m manifest
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	c := m.Spec.Template.Spec.Containers[0]
	if len(c.Command) != 1 || c.Command[0] != "/bin/ratelimit" || len(c.Args) != 0 || len(c.Env) < 20 {
		t.Fatalf("the container runs %v %v with %d variables", c.Command, c.Args, len(c.Env))
	}

	certs := t.TempDir()
	ca, key := certify(t, certs, "ca", nil, nil)
	certify(t, certs, "tls", ca, key)
	for from, to := range map[string]string{"ca.pem": "ca.crt", "tls.pem": "tls.crt"} {
		if err := os.Rename(filepath.Join(certs, from), filepath.Join(certs, to)); err != nil {
			t.Fatal(err)
		}
	}
	both, err := tls.LoadX509KeyPair(certs+"/tls.crt", certs+"/tls.key")
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(ca)
	control, port := startControlPlane(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{both}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))

	redis := redistest.Start(t)
	ours, _, _ := image(t)
	named := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(binary, named); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(named)
	cmd.Env = append(ours, "HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "LOG_FORMAT=text")
	for _, v := range c.Env {
		value := strings.ReplaceAll(v.Value, "/certs/", certs+"/")
		switch v.Name {
		case "CONFIG_GRPC_XDS_SERVER_URL":
			value = "127.0.0.1:" + port
		case "REDIS_URL":
			value = redis.Addr()
		case "PROMETHEUS_ADDR":
			value = "127.0.0.1:0"
		}
		cmd.Env = append(cmd.Env, v.Name+"="+value)
	}
	p := run(t, cmd)
	for name, of := range map[string]probe{"startup": c.Startup, "readiness": c.Readiness, "liveness": c.Liveness} {
		if status, _ := get(t, p.url+of.Get.Path); of.Get.Port != "8080" || status != http.StatusOK {
			t.Errorf("%s at %s: %d", name, of.Get.Port, status)
		}
	}

	files, err := filepath.Glob(theirs + "/ratelimit-config/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".routes.yaml") {
			continue
		}
		all := gatewayConfigs(t, file)
		mark := filepath.Base(file) // shows that the configuration is in use
		one := &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_HOUR, RequestsPerUnit: 1}
		control.put(t, append(all, &rls.RateLimitConfig{Name: mark, Domain: mark, Descriptors: []*rls.RateLimitDescriptor{{Key: "k", RateLimit: one}}})...)
		servertest.Wait(t, mark+" is not in use", func() bool {
			_, text := get(t, p.admin+"/rlconfig")
			return strings.Contains(text, mark) || len(control.reasons()) > 0
		})
		if reasons := control.reasons(); len(reasons) > 0 {
			t.Fatalf("%s is rejected: %q", file, reasons)
		}
		taken++
	}
	if taken < 20 {
		t.Errorf("%d configurations", taken)
	}

	control.put(t, gatewayConfigs(t, theirs+"/ratelimit-config/distinct-remote-address-match.yaml")...)
	servertest.Wait(t, "the last configuration is not in use", func() bool {
		_, text := get(t, p.admin+"/rlconfig")
		return strings.Contains(text, "192.168.0.0/16") && !strings.Contains(text, "value-match.yaml")
	})
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: trusted, Certificates: []tls.Certificate{both}, MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	request := &pb.RateLimitRequest{Domain: "first-listener", HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{
		{Key: "first-route", Value: "first-route"}, {Key: "masked_remote_address", Value: "192.168.0.0/16"}, {Key: "remote_address", Value: "192.168.3.4"},
	}}}}
	for i, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} { // 5 a second
		res, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request)
		if err != nil || i == 0 && res.OverallCode != want {
			t.Errorf("call %d: %v, %v", i, res, err)
		}
	}
}
