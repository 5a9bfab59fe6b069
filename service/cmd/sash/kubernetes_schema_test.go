//go:build kubernetes

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// Every manifest is valid.
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

// A pod ends by itself, long before the kubelet kills it.
func TestKubernetesPodEndsInItsTime(t *testing.T) {
	all := manifests(t)
	p := startPod(t, all)
	began := time.Now()
	if err := p.interrupt(); err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(at(all["Deployment"], "spec", "template", "spec", "terminationGracePeriodSeconds").(int)) * time.Second
	select {
	case err := <-p.ended:
		delay, _ := time.ParseDuration(argument(t, p.spec, "drain-delay"))
		if took := time.Since(began); err != nil || took < delay {
			t.Errorf("it ended with %v after %v", err, took)
		}
	case <-time.After(grace):
		t.Errorf("it does not end within %v: %s", grace, p.logs)
	}
}
