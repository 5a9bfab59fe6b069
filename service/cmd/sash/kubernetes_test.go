package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

const kubernetes = examples + "/kubernetes"

type labels map[string]string

type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

// A manifest has what the tests read of a resource of Kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Replicas    int
		Selector    yaml.Node
		PodSelector selector `yaml:"podSelector"`
		Ingress     []struct {
			Ports []struct{ Port string }
		}
		Ports []struct {
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct{ Labels labels }
			Spec     struct {
				Grace           int `yaml:"terminationGracePeriodSeconds"`
				SecurityContext struct {
					RunAsUser  int `yaml:"runAsUser"`
					RunAsGroup int `yaml:"runAsGroup"`
				} `yaml:"securityContext"`
				Containers []podContainer
				Volumes    []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
				}
			}
		}
	}
}

type podContainer struct {
	Command []string
	Args    []string
	Env     []struct {
		Name, Value string
		ValueFrom   struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Readiness probe `yaml:"readinessProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Startup   probe `yaml:"startupProbe"`
	Resources struct {
		Limits struct{ Memory string }
	}
	Mounts []struct {
		Name     string
		Path     string `yaml:"mountPath"`
		ReadOnly bool   `yaml:"readOnly"`
		SubPath  string `yaml:"subPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// manifests returns the resources of the example by their kinds.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob(kubernetes + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	all := map[string]manifest{}
	for _, file := range files {
		text := readFile(t, file)
		documents := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var m manifest
			if err := documents.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if _, twice := all[m.Kind]; twice {
				t.Fatalf("%s: a second %s", file, m.Kind)
			}
			all[m.Kind] = m
		}
	}
	return all
}

// A pod is the service as the Deployment runs it.
type pod struct {
	*service
	spec  podContainer
	redis *redistest.Server
}

// startPod runs the container's command with its variables, those of the image, a Redis and values for its secrets. Only
// the addresses and the place of the configuration are those of the test.
func startPod(t *testing.T, all map[string]manifest, extra ...string) *pod {
	t.Helper()
	p := &pod{spec: all["Deployment"].Spec.Template.Spec.Containers[0], redis: redistest.Start(t)}
	dir := t.TempDir()
	(&kubelet{dir: dir}).mount(t, all["ConfigMap"].Data)
	env, _, _ := image(t)
	mounted := false
	for i, pair := range env {
		if pair == "SASH_CONFIG="+p.spec.Mounts[0].Path {
			env[i], mounted = "SASH_CONFIG="+dir, true
		}
	}
	if !mounted {
		t.Fatalf("the configuration is mounted at %s, and the image reads %v", p.spec.Mounts[0].Path, env)
	}
	for _, v := range p.spec.Env {
		value := v.Value
		if secret := v.ValueFrom.SecretKeyRef; secret.Key != "" {
			value = strings.Repeat(secret.Key, 8)
			if v.Name == "SASH_REDIS" {
				value = "redis://" + p.redis.Addr()
			}
		}
		env = append(env, v.Name+"="+value)
	}
	args := slices.Concat(p.spec.Args, []string{"--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--json=false"}, extra)
	cmd := exec.Command(binary, args...)
	cmd.Env = env
	p.service = run(t, cmd)
	return p
}

// probe asks as a kubelet does, by the pod's address.
func (p *pod) probe(t *testing.T, of probe) int {
	t.Helper()
	base := map[string]string{"http": p.url, "admin": p.admin}[of.Get.Port]
	req := newRequest(t, http.MethodGet, strings.TrimSuffix(base, "/dashboard")+of.Get.Path, nil)
	req.Host = "10.244.0.7:" + req.URL.Port()
	req.Header.Set("User-Agent", "kube-probe/1.37")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// The probes find a pod well with and without its Redis, and not ready once it ends, while it still decides.
func TestKubernetesPodAndItsProbes(t *testing.T) {
	all := manifests(t)
	p := startPod(t, all)
	allowed := func() (int, map[string]any) {
		return post(t, p.url+"/v1/allow", `{"domain":"shop","entries":[{"key":"path","value":"/search"}]}`)
	}
	if code, said := allowed(); code != 200 || said["source"] != "store" {
		t.Errorf("a call: %d %v", code, said)
	}
	if ready, alive := p.probe(t, p.spec.Readiness), p.probe(t, p.spec.Liveness); ready != 200 || alive != 200 {
		t.Errorf("a pod that is well: ready %d, alive %d", ready, alive)
	}
	p.redis.Stop()
	servertest.Wait(t, "no share of this instance", func() bool { _, said := allowed(); return said["source"] == "local" })
	if ready, alive := p.probe(t, p.spec.Readiness), p.probe(t, p.spec.Liveness); ready != 200 || alive != 200 {
		t.Errorf("without Redis: ready %d, alive %d", ready, alive)
	}
	if err := p.interrupt(); err != nil {
		t.Fatal(err)
	}
	servertest.Wait(t, "a pod that ends is ready", func() bool { return p.probe(t, p.spec.Readiness) == 503 })
	if code, said := allowed(); code != 200 {
		t.Errorf("a call while it ends: %d %v", code, said)
	}
	if log := p.logs.String(); !strings.Contains(log, "for="+drainDelay(t, p.spec).String()) {
		t.Errorf("it does not wait for %v: %s", drainDelay(t, p.spec), log)
	}
	if err := p.interrupt(); err != nil { // the second ends it at once
		t.Fatal(err)
	}
	<-p.ended
}

// flag returns the value of a flag in the container's arguments.
func (c podContainer) flag(t *testing.T, name string) string {
	t.Helper()
	for _, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("the arguments %v have no --%s", c.Args, name)
	return ""
}

func drainDelay(t *testing.T, c podContainer) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(c.flag(t, "drain-delay"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What the manifests say of each other, of the image and of the service is true.
func TestKubernetesManifestsAgree(t *testing.T) {
	all := manifests(t)
	deployment := all["Deployment"].Spec
	spec := deployment.Template.Spec
	c := spec.Containers[0]

	// After --drain-delay requests have ten seconds, and local admissions five.
	if least := drainDelay(t, c) + 15*time.Second; time.Duration(spec.Grace)*time.Second <= least {
		t.Errorf("terminationGracePeriodSeconds is %d, and the service can need %v", spec.Grace, least)
	}
	if c.flag(t, "instances") != strconv.Itoa(deployment.Replicas) {
		t.Errorf("--instances=%s with %d replicas", c.flag(t, "instances"), deployment.Replicas)
	}
	file := readFile(t, repository+"/Dockerfile")
	if user := strconv.Itoa(spec.SecurityContext.RunAsUser) + ":" + strconv.Itoa(spec.SecurityContext.RunAsGroup); !strings.Contains(string(file), "\nUSER "+user+"\n") {
		t.Errorf("the pod runs as %s, and the image does not", user)
	}
	_, help, _ := sash(t, nil, "serve", "--help")
	ports := map[string]string{}
	for _, port := range c.Ports {
		ports[port.Name] = ":" + strconv.Itoa(port.Port)
	}
	for name, flag := range map[string]string{"http": "addr", "grpc": "grpc-addr"} {
		if usage := regexp.MustCompile(`(?s)--` + flag + ` address.*?\(default\s+"([^"]+)"\)`).FindStringSubmatch(help); usage == nil || usage[1] != ports[name] {
			t.Errorf("port %s is %s, and the service's is %q", name, ports[name], usage)
		}
	}
	if ports["admin"] != c.flag(t, "admin-addr") {
		t.Errorf("port admin is %s, and the service's is %s", ports["admin"], c.flag(t, "admin-addr"))
	}
	for _, port := range all["Service"].Spec.Ports {
		if ports[port.TargetPort] == "" || port.TargetPort == "admin" {
			t.Errorf("the Service leads to port %s", port.TargetPort)
		}
	}
	reached := map[string]bool{}
	for _, rule := range all["NetworkPolicy"].Spec.Ingress {
		for _, port := range rule.Ports {
			reached[port.Port] = true
		}
	}
	for name := range ports {
		if !reached[name] || len(reached) != len(ports) {
			t.Errorf("the policy lets callers reach %v of the ports %v", reached, ports)
		}
	}

	pods := deployment.Template.Metadata.Labels
	var byService labels
	var byDeployment, byBudget selector
	for kind, to := range map[string]any{"Service": &byService, "Deployment": &byDeployment, "PodDisruptionBudget": &byBudget} {
		selects := all[kind].Spec.Selector
		if err := selects.Decode(to); err != nil {
			t.Fatal(err)
		}
	}
	for kind, selects := range map[string]labels{
		"Service": byService, "Deployment": byDeployment.MatchLabels, "PodDisruptionBudget": byBudget.MatchLabels,
		"NetworkPolicy": all["NetworkPolicy"].Spec.PodSelector.MatchLabels,
	} {
		for name, value := range selects {
			if pods[name] != value {
				t.Errorf("the selector of %s is not of the pods: %v", kind, selects)
			}
		}
		if len(selects) == 0 || all[kind].Metadata.Namespace != all["Namespace"].Metadata.Name {
			t.Errorf("%s selects %v in %s", kind, selects, all[kind].Metadata.Namespace)
		}
	}
	if volume := spec.Volumes[0]; volume.Name != c.Mounts[0].Name || volume.ConfigMap.Name != all["ConfigMap"].Metadata.Name || !c.Mounts[0].ReadOnly || c.Mounts[0].SubPath != "" {
		t.Errorf("the configuration is not mounted: %+v, %+v", volume, c.Mounts[0])
	}

	guide := readFile(t, kubernetes+"/README.md")
	limit, err := strconv.Atoi(strings.TrimSuffix(c.Resources.Limits.Memory, "Mi"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range c.Env {
		secret := v.ValueFrom.SecretKeyRef
		if secret.Key != "" && (secret.Name != "sash" || !strings.Contains(string(guide), "--from-literal="+secret.Key+"=")) {
			t.Errorf("README.md does not create key %s of the Secret %s", secret.Key, secret.Name)
		}
		if v.Name == "GOMEMLIMIT" {
			if soft, err := strconv.Atoi(strings.TrimSuffix(v.Value, "MiB")); err != nil || soft >= limit || soft < limit*3/4 {
				t.Errorf("GOMEMLIMIT is %s of %d Mi: %v", v.Value, limit, err)
			}
		}
	}
}
