//go:build kubernetes

package main

import (
	"io/fs"
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

// Every manifest is valid, and each is rejected with a mistake in it.
func TestKubernetesManifestsAreValid(t *testing.T) {
	mistakes := map[string][2]string{
		"namespace.yaml":     {"metadata:", "metadate:"},
		"configuration.yaml": {"  shop.yaml: |", "  shop.yaml: 1\n  text: |"},
		"deployment.yaml":    {"readOnlyRootFilesystem", "readonlyRootFilesystem"},
		"service.yaml":       {"port: 8081", "port: grpc"},
		"disruption.yaml":    {"matchLabels:", "matchLabel:"},
		"network.yaml":       {"policyTypes: [Ingress, Egress]", "policyTypes: Ingress"},
		"envoyfilter.yaml":   {"INSERT_BEFORE", "INSERT_BEHIND"},
		"policy.yaml":        {"unit: Minute", "unit: Moment"},
	}
	seen := 0
	err := filepath.WalkDir(kubernetes, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".yaml" || entry.Name() == "envoy-gateway.yaml" { // a file of Envoy Gateway, which has no schema
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if valid, said := conforms(t, string(text)); !valid || !strings.Contains(said, "Invalid: 0, Errors: 0, Skipped: 0") {
			t.Errorf("%s: %s", name, said)
		}
		seen++
		change, ok := mistakes[entry.Name()]
		if !ok {
			t.Errorf("no mistake is tried in %s", name)
			return nil
		}
		if valid, said := conforms(t, edited(t, string(text), change[0], change[1])); valid {
			t.Errorf("%s with %q: %s", name, change[1], said)
		}
		return nil
	})
	if err != nil || seen != len(mistakes) {
		t.Errorf("%d manifests: %v", seen, err)
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
