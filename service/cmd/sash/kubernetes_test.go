package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
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

// at returns what a tree of YAML has below keys, of maps and lists, or nil.
func at(tree any, keys ...any) any {
	for _, key := range keys {
		switch of := tree.(type) {
		case map[string]any:
			tree = of[key.(string)]
		case []any:
			tree = of[key.(int)]
		}
	}
	return tree
}

// list returns the list below keys, which may be none.
func list(tree any, keys ...any) []any {
	all, _ := at(tree, keys...).([]any)
	return all
}

func documents(t *testing.T, file string) (all []any) {
	t.Helper()
	for documents := yaml.NewDecoder(bytes.NewReader(readFile(t, file))); ; {
		var tree any
		if err := documents.Decode(&tree); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(file, err)
		}
		all = append(all, tree)
	}
}

func manifests(t *testing.T) map[string]any {
	t.Helper()
	files, err := filepath.Glob(kubernetes + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	all := map[string]any{}
	for _, file := range files {
		for _, m := range documents(t, file) {
			kind := at(m, "kind").(string)
			if all[kind] != nil {
				t.Fatalf("%s: a second %s", file, kind)
			}
			all[kind] = m
		}
	}
	return all
}

// The Deployment's container runs with its command, its variables, those of the image, a Redis and values for its secrets.
// Only the addresses and the place of the configuration are those of the test. The probes find it well, and not ready once it
// ends.
func TestKubernetesPodAndItsProbes(t *testing.T) {
	all := manifests(t)
	spec, redis := at(all["Deployment"], "spec", "template", "spec", "containers", 0), redistest.Start(t)
	dir := t.TempDir()
	for name, text := range at(all["ConfigMap"], "data").(map[string]any) {
		put(t, filepath.Join(dir, name), text.(string))
	}
	env, _, _ := image(t)
	mounted := slices.Index(env, fmt.Sprint("SASH_CONFIG=", at(spec, "volumeMounts", 0, "mountPath")))
	if mounted < 0 {
		t.Fatalf("the configuration is mounted at %s, and the image reads %v", at(spec, "volumeMounts", 0), env)
	}
	env[mounted] = "SASH_CONFIG=" + dir
	for _, v := range list(spec, "env") {
		value := fmt.Sprint(at(v, "value"))
		if secret, ok := at(v, "valueFrom", "secretKeyRef", "key").(string); ok {
			value = strings.Repeat(secret, 8)
		}
		if at(v, "name") == "SASH_REDIS" {
			value = "redis://" + redis.Addr()
		}
		env = append(env, fmt.Sprint(at(v, "name"), "=", value))
	}
	cmd := exec.Command(binary, "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--json=false")
	for _, arg := range list(spec, "args") {
		cmd.Args = append(cmd.Args, arg.(string))
	}
	cmd.Args, cmd.Env = append(cmd.Args, "--admin-addr", "127.0.0.1:0"), env
	p := run(t, cmd)

	probe := func(name string) int {
		get := at(spec, name+"Probe", "httpGet")
		base := map[any]string{"http": p.url, "admin": p.admin}[at(get, "port")]
		res, _ := send(t, http.MethodGet, base+at(get, "path").(string), "", "Host", "10.244.0.7") // a kubelet's
		return res.StatusCode
	}
	if code, said := post(t, p.url+"/v1/allow", subject("shop", "path", "/search")); code != 200 || said["source"] != "store" {
		t.Errorf("a call: %d %v", code, said)
	}
	if ready, alive := probe("readiness"), probe("liveness"); ready != 200 || alive != 200 {
		t.Errorf("ready %d, alive %d", ready, alive)
	}
	servertest.Check(t, p.interrupt())
	servertest.Wait(t, "a pod that ends is ready", func() bool { return probe("readiness") == 503 })
}

// argument returns the value of a flag in a container's arguments.
func argument(t *testing.T, container any, flag string) string {
	t.Helper()
	for _, arg := range list(container, "args") {
		if value, ok := strings.CutPrefix(arg.(string), "--"+flag+"="); ok {
			return value
		}
	}
	t.Fatalf("the arguments have no --%s", flag)
	return ""
}

// What the manifests say of each other, of the image and of the service is true.
func TestKubernetesManifestsAgree(t *testing.T) {
	all := manifests(t)
	deployment := at(all["Deployment"], "spec")
	spec := at(deployment, "template", "spec")
	c := at(spec, "containers", 0)
	same := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) || want == nil {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	// After --drain-delay requests have ten seconds, and local admissions five.
	delay, err := time.ParseDuration(argument(t, c, "drain-delay"))
	if grace := at(spec, "terminationGracePeriodSeconds").(int); err != nil || time.Duration(grace)*time.Second <= delay+15*time.Second {
		t.Errorf("terminationGracePeriodSeconds is %d, and --drain-delay %v", grace, delay)
	}
	same("--instances", argument(t, c, "instances"), at(deployment, "replicas"))
	user := fmt.Sprintf("\nUSER %v:%v\n", at(spec, "securityContext", "runAsUser"), at(spec, "securityContext", "runAsGroup"))
	if !strings.Contains(string(readFile(t, repository+"/Dockerfile")), user) {
		t.Errorf("the image does not run as %s", user)
	}
	ports, reached := map[any]string{}, map[any]string{}
	for _, port := range list(c, "ports") {
		ports[at(port, "name")] = fmt.Sprint(":", at(port, "containerPort"))
	}
	same("the ports of the service", ports["http"]+ports["grpc"]+ports["admin"], ":8080:8081"+argument(t, c, "admin-addr"))
	for _, port := range list(all["Service"], "spec", "ports") {
		if name := at(port, "targetPort"); ports[name] == "" || name == "admin" {
			t.Errorf("the Service leads to port %s", name)
		}
	}
	for _, rule := range list(all["NetworkPolicy"], "spec", "ingress") {
		for _, port := range list(rule, "ports") {
			reached[at(port, "port")] = ports[at(port, "port")]
		}
	}
	same("the ports that callers reach by the policy", reached, ports)
	for kind, selects := range map[string]any{
		"Service":             at(all["Service"], "spec", "selector"),
		"Deployment":          at(deployment, "selector", "matchLabels"),
		"PodDisruptionBudget": at(all["PodDisruptionBudget"], "spec", "selector", "matchLabels"),
		"NetworkPolicy":       at(all["NetworkPolicy"], "spec", "podSelector", "matchLabels"),
	} {
		same("the selector of "+kind, selects, at(deployment, "template", "metadata", "labels"))
		same("the namespace of "+kind, at(all[kind], "metadata", "namespace"), at(all["Namespace"], "metadata", "name"))
	}
	mount, volume := at(c, "volumeMounts", 0), at(spec, "volumes", 0)
	same("the volume", at(mount, "name"), at(volume, "name"))
	same("the ConfigMap", at(volume, "configMap", "name"), at(all["ConfigMap"], "metadata", "name"))
	same("the mount is read-only, and follows changes", fmt.Sprint(at(mount, "readOnly"), at(mount, "subPath")), "true <nil>")

	guide := string(readFile(t, kubernetes+"/README.md"))
	for _, v := range list(c, "env") {
		secret := at(v, "valueFrom", "secretKeyRef")
		if secret != nil && (at(secret, "name") != "sash" || !strings.Contains(guide, fmt.Sprintf("--from-literal=%s=", at(secret, "key")))) {
			t.Errorf("README.md does not create %v", secret)
		}
		if at(v, "name") == "GOMEMLIMIT" {
			soft, err := strconv.Atoi(strings.TrimSuffix(at(v, "value").(string), "MiB"))
			limit, err2 := strconv.Atoi(strings.TrimSuffix(at(c, "resources", "limits", "memory").(string), "Mi"))
			if err != nil || err2 != nil || soft >= limit || soft < limit*3/4 {
				t.Errorf("GOMEMLIMIT is %d of %d Mi", soft, limit)
			}
		}
	}
}

// istioFilter returns the filter that the EnvoyFilter of the example has Istio insert, in YAML, without its type and
// service, and with time for a busy machine. It stands where a request's descriptors are made, before the router, and its
// cluster is the Service.
func istioFilter(t *testing.T) string {
	t.Helper()
	patch := at(documents(t, kubernetes+"/istio/envoyfilter.yaml")[0], "spec", "configPatches", 0)
	config := at(patch, "patch", "value", "typed_config").(map[string]any)
	got := fmt.Sprintln(at(patch, "applyTo"), at(patch, "match", "listener", "filterChain", "filter", "subFilter", "name"),
		at(patch, "patch", "operation"), at(patch, "patch", "value", "name"), config["@type"])
	if got != "HTTP_FILTER envoy.filters.http.router INSERT_BEFORE envoy.filters.http.ratelimit type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit\n" {
		t.Errorf("the filter is %s", got)
	}
	delete(config, "@type")
	config["timeout"] = "20s"
	out := servertest.Must(yaml.Marshal(config))(t)
	service, cluster := manifests(t)["Service"], at(config, "rate_limit_service", "grpc_service", "envoy_grpc", "cluster_name")
	want := fmt.Sprintf("outbound|8081||%s.%s.svc.cluster.local", at(service, "metadata", "name"), at(service, "metadata", "namespace"))
	if cluster != want {
		t.Errorf("the cluster is %s, want %s", cluster, want)
	}
	return string(out)
}

func TestTheFilterOfIstio(t *testing.T) { istioFilter(t) }
