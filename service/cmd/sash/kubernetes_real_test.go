//go:build kubernetes

package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// conforms validates manifests with kubeconform against the schemas of Kubernetes, and returns what it says.
func conforms(t *testing.T, manifests string) (bool, string) {
	t.Helper()
	dir := os.Getenv("KUBERNETES_DIR")
	if dir == "" {
		t.Fatal("KUBERNETES_DIR does not name kubeconform and its schemas: run make test-kubernetes, which gets them")
	}
	cmd := exec.Command(dir+"/kubeconform", "-strict", "-verbose", "-summary", "-schema-location", dir+"/schemas/{{.ResourceKind}}{{.KindSuffix}}.json")
	cmd.Stdin = strings.NewReader(manifests)
	out, err := cmd.CombinedOutput()
	return err == nil, string(out)
}

func TestKubernetesManifestsAreValid(t *testing.T) {
	files, err := filepath.Glob(kubernetes + "/*.yaml")
	deeper, err2 := filepath.Glob(kubernetes + "/*/*.yaml")
	if files = append(files, deeper...); err != nil || err2 != nil || len(files) < 8 {
		t.Fatalf("%d manifests", len(files))
	}
	for _, file := range files {
		if filepath.Base(file) == "envoy-gateway.yaml" { // a file of Envoy Gateway, which has no schema
			continue
		}
		if valid, said := conforms(t, string(readFile(t, file))); !valid || !strings.Contains(said, "Invalid: 0, Errors: 0, Skipped: 0") {
			t.Errorf("%s: %s", file, said)
		}
	}
	service := string(readFile(t, kubernetes+"/service.yaml"))
	if valid, said := conforms(t, edited(t, service, "port: 8081", "port: grpc")); valid {
		t.Errorf("a mistake is not found: %s", said)
	}
}

// gatewayConfigs returns the configurations of a file, as Envoy Gateway makes them of policies.
func gatewayConfigs(t *testing.T, file string) (all []proto.Message) {
	t.Helper()
	for _, tree := range documents(t, file) {
		config := &rls.RateLimitConfig{}
		text, _ := json.Marshal(tree) // the file has defaults that the protocol does not have
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, config); err != nil {
			t.Fatal(file, err)
		}
		all = append(all, config)
	}
	return all
}

// Sash starts with the command, the variables and the certificates of the rate limit service that Envoy Gateway runs, is
// well by its probes, takes each configuration that Envoy Gateway has in its own tests, and decides by it over TLS.
func TestKubernetesInPlaceOfTheServiceOfEnvoyGateway(t *testing.T) {
	theirs := os.Getenv("KUBERNETES_DIR") + "/envoy-gateway"
	c := at(documents(t, theirs+"/default.yaml")[0], "spec", "template", "spec", "containers", 0)
	if command := fmt.Sprint(at(c, "command")); command != "[/bin/ratelimit]" || at(c, "args") != nil || len(list(c, "env")) < 20 {
		t.Fatalf("the container runs %s %v with %d variables", command, at(c, "args"), len(list(c, "env")))
	}
	ca := certify(t, "tls")
	both := ca.client(t, "tls")
	both.ClientCAs, both.ClientAuth = both.RootCAs, tls.RequireAndVerifyClientCert
	for from, to := range map[string]string{"authority.pem": "ca.crt", "tls.pem": "tls.crt"} {
		servertest.Check(t, os.Rename(ca.file(from), ca.file(to)))
	}
	control, port := startControlPlane(t, grpc.Creds(credentials.NewTLS(both)))

	redis := redistest.Start(t)
	ours, _, _ := image(t)
	cmd := exec.Command(ratelimit(t))
	cmd.Env = append(ours, envoysPorts(redis, "LOG_FORMAT=text")...)
	for _, v := range list(c, "env") {
		value := strings.ReplaceAll(fmt.Sprint(at(v, "value")), "/certs/", ca.dir+"/")
		switch at(v, "name") {
		case "CONFIG_GRPC_XDS_SERVER_URL":
			value = "127.0.0.1:" + port
		case "REDIS_URL":
			value = redis.Addr()
		case "PROMETHEUS_ADDR":
			value = "127.0.0.1:0"
		}
		cmd.Env = append(cmd.Env, fmt.Sprint(at(v, "name"), "=", value))
	}
	p := run(t, cmd)
	for _, name := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		of := at(c, name, "httpGet")
		if status, _ := get(t, p.url+fmt.Sprint(at(of, "path"))); fmt.Sprint(at(of, "port")) != "8080" || status != http.StatusOK {
			t.Errorf("%s at %v: %d", name, of, status)
		}
	}

	files := servertest.Must(filepath.Glob(theirs + "/ratelimit-config/*.yaml"))(t)
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
	conn := servertest.Must(grpc.NewClient(p.grpc, grpc.WithTransportCredentials(credentials.NewTLS(both))))(t)
	defer func() { _ = conn.Close() }()
	request := descriptors("first-listener", "first-route=first-route masked_remote_address=192.168.0.0/16 remote_address=192.168.3.4")
	request.HitsAddend = 3 // of 5 a second
	res, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request)
	if err != nil || res.OverallCode != pb.RateLimitResponse_OK || len(res.Statuses) != 1 || res.Statuses[0].CurrentLimit == nil {
		t.Errorf("a call: %v, %v", res, err)
	}
}
