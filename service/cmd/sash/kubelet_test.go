package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// A kubelet mounts a ConfigMap or a Secret in a directory: the files are links through ..data to the directory of their
// version, and so are directories, which `items` of a volume can make. It replaces all of them at once, by renaming
// ..data.
type kubelet struct {
	dir     string
	version int
}

// mount replaces the files by others.
func (k *kubelet) mount(t *testing.T, files map[string]string) {
	t.Helper()
	k.version++
	old, _ := os.Readlink(filepath.Join(k.dir, "..data"))
	current := fmt.Sprintf("..2026_11_23_07_00_%02d.1", k.version)
	for name, text := range files {
		put(t, filepath.Join(k.dir, current, name), text)
	}
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try(os.Symlink(current, filepath.Join(k.dir, "..data_tmp")))
	try(os.Rename(filepath.Join(k.dir, "..data_tmp"), filepath.Join(k.dir, "..data")))
	top := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		top[first] = true
	}
	for first := range top {
		if _, err := os.Lstat(filepath.Join(k.dir, first)); err != nil {
			try(os.Symlink(filepath.Join("..data", first), filepath.Join(k.dir, first)))
		}
	}
	there, err := os.ReadDir(k.dir)
	try(err)
	for _, entry := range there {
		if !top[entry.Name()] && !strings.HasPrefix(entry.Name(), "..") {
			try(os.Remove(filepath.Join(k.dir, entry.Name())))
		}
	}
	if old != "" {
		try(os.RemoveAll(filepath.Join(k.dir, old)))
	}
}

// limitOf is a file with a limit of so many units for each value of key.
func limitOf(domain string, units int) string {
	return fmt.Sprintf("domain: %s\ndescriptors: [{key: key, limits: [%d/1h]}]\n", domain, units)
}

// remaining returns how many units a fresh subject of the domain has, or -1 without such a domain.
func remaining(t *testing.T, p *service, domain string) int {
	t.Helper()
	code, said := post(t, p.url+"/v1/peek", `{"domain":"`+domain+`","entries":[{"key":"key","value":"fresh"}]}`)
	if code != 200 {
		return -1
	}
	return int(said["remaining"].(float64))
}

// The service follows a ConfigMap with files and directories, from version to version, and keeps the last valid one.
func TestAConfigMapThatAKubeletReplaces(t *testing.T) {
	k := &kubelet{dir: t.TempDir()}
	files := map[string]string{"one.yaml": limitOf("one", 1), "teams/two.yaml": limitOf("two", 2), "teams/deep/three.yaml": limitOf("three", 3)}
	k.mount(t, files)
	p := serve(t, "--config", k.dir)
	holds := func(one, two, three int) {
		t.Helper()
		servertest.Wait(t, fmt.Sprintf("the limits are not %d, %d and %d: %s", one, two, three, p.logs), func() bool {
			return remaining(t, p, "one") == one && remaining(t, p, "two") == two && remaining(t, p, "three") == three
		})
	}
	holds(1, 2, 3)
	if strings.Contains(p.logs.String(), "is not read") {
		t.Errorf("files are left out: %s", p.logs)
	}

	for version := range 3 { // the directories of earlier versions are gone
		files["teams/two.yaml"] = limitOf("two", 20+version)
		files["teams/deep/three.yaml"] = limitOf("three", 30+version)
		k.mount(t, files)
		holds(1, 20+version, 30+version)
	}

	bad := maps.Clone(files)
	bad["one.yaml"] = limitOf("one", 10)
	bad["teams/two.yaml"] = "domain: two\ndescriptors: [{key: key, limits: [many]}]\n"
	k.mount(t, bad)
	servertest.Wait(t, "nothing says that the configuration is wrong", func() bool {
		return strings.Contains(p.logs.String(), "the last valid one stays in use") && strings.Contains(p.logs.String(), "teams/two.yaml")
	})
	holds(1, 22, 32)
	if _, text := get(t, p.admin+"/rlconfig"); !strings.Contains(text, "teams/two.yaml") {
		t.Errorf("/rlconfig does not name the wrong file: %s", text)
	}

	delete(files, "teams/deep/three.yaml")
	files["teams/two.yaml"] = limitOf("two", 200)
	files["later/four.yaml"] = limitOf("four", 4)
	k.mount(t, files)
	holds(1, 200, -1)
	if n := remaining(t, p, "four"); n != 4 {
		t.Errorf("a directory that was added: %d", n)
	}
}

// The file of clients is in a ConfigMap too.
func TestAFileOfClientsThatAKubeletReplaces(t *testing.T) {
	config, clients := &kubelet{dir: t.TempDir()}, &kubelet{dir: t.TempDir()}
	config.mount(t, map[string]string{"limits.yaml": limitOf("one", 1)})
	clients.mount(t, map[string]string{"access.yaml": "anonymous: {allow: [decide]}\n"})
	p := serve(t, "--config", config.dir, "--access", filepath.Join(clients.dir, "access.yaml"))
	code := func() int {
		code, _ := post(t, p.url+"/v1/peek", `{"domain":"one","entries":[{"key":"key","value":"fresh"}]}`)
		return code
	}
	if got := code(); got != 200 {
		t.Fatalf("anonymous callers get %d", got)
	}
	clients.mount(t, map[string]string{"access.yaml": "anonymous: {allow: [everything]}\n"})
	servertest.Wait(t, "nothing says that the file is wrong", func() bool {
		return code() == 200 && strings.Contains(p.logs.String(), "the changed file of --access is wrong")
	})
	clients.mount(t, map[string]string{"access.yaml": "anonymous: {allow: [decide], domains: [other]}\n"})
	servertest.Wait(t, "the new file does not hold", func() bool { return code() != 200 })
}
