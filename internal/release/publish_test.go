package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	xmodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// A proxy is a directory that the go command reads modules from, as from a module proxy.
type proxy struct{ dir string }

// publish puts a module into the proxy as its tag has it.
func (p proxy) publish(t *testing.T, root string, m module, version string) {
	t.Helper()
	escaped, err := xmodule.EscapePath(m.path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.dir, filepath.FromSlash(escaped), "@v")
	var archive bytes.Buffer
	if err := zip.CreateFromVCS(&archive, xmodule.Version{Path: m.path, Version: version}, root, m.tag(version), strings.TrimPrefix(m.dir, ".")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, version+".zip"), archive.String())
	put(t, filepath.Join(dir, version+".mod"), git(t, root, "show", m.tag(version)+":"+path.Join(m.dir, "go.mod"))+"\n")
	put(t, filepath.Join(dir, version+".info"), fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Unix(0, 0).UTC().Format(time.RFC3339)))
	list, err := os.OpenFile(filepath.Join(dir, "list"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	fmt.Fprintln(list, version)
}

// A user has a module of their own, in an empty directory, and takes modules from a proxy.
type user struct {
	dir string
	env []string
}

// newUser makes a user. Modules that are not in the proxy come from this machine's module cache, or else from the proxies
// that this machine uses. All users of a proxy share a cache of their own beside it, so that nothing is left in this
// machine's cache.
func newUser(t *testing.T, p proxy, sash string) user {
	t.Helper()
	var env struct{ GOMODCACHE, GOPROXY string }
	out, err := output(t.Context(), ".", nil, "go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err == nil {
		err = json.Unmarshal([]byte(out), &env)
	}
	if err != nil {
		t.Fatal(err)
	}
	u := user{dir: t.TempDir()}
	u.env = []string{
		"GOPROXY=file://" + filepath.ToSlash(p.dir) + ",file://" + filepath.ToSlash(env.GOMODCACHE) + "/cache/download," + env.GOPROXY,
		"GOMODCACHE=" + p.dir + "-cache", "GOBIN=" + filepath.Join(u.dir, "bin"),
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", // with -trimpath the build cache knows a package by its version, wherever it lies
		"GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=", // the checksums of what others wrote are in the go.sum files of this repository
	}
	u.run(t, "go", "mod", "init", sash+"/user") // whose examples may import the tests' Redis
	return u
}

func (u user) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := output(t.Context(), u.dir, u.env, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// copyCheckout copies what Git would commit of this checkout, and commits it to a repository of its own.
func copyCheckout(t *testing.T) (root string) {
	t.Helper()
	const here = "../.."
	root = t.TempDir()
	for name := range strings.SplitSeq(git(t, here, "ls-files", "--cached", "--others", "--exclude-standard", "-z"), "\x00") {
		text, err := os.ReadFile(filepath.Join(here, name))
		if name == "" || os.IsNotExist(err) { // removed, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(root, name), string(text))
	}
	commitAll(t, root)
	return root
}

// makeRelease releases a version with make release, and loads the repository at it.
func makeRelease(t *testing.T, root, version string) *repository {
	t.Helper()
	out, err := output(t.Context(), root, nil, "make", "--no-print-directory", "release", "VERSION="+version)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "git push --atomic origin main "+version+" ") {
		t.Errorf("make release does not print what to push:\n%s", out)
	}
	r, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	fenced  = regexp.MustCompile("(?s)\n```(\\w*)\n(.*?)\n```\n")
	imports = regexp.MustCompile(`(?m)^\s+(?:_ )?"([^"]+)"$`)
)

// programs returns the Go files of a checkout that have the programs of its README, as they are in it.
func programs(t *testing.T, root, readme string) (files []string) {
	t.Helper()
	lines := func(text string) string { // with the indentation of none
		var b strings.Builder
		for line := range strings.Lines(text + "\n") {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
		return "\n" + strings.TrimRight(b.String(), "\n") + "\n"
	}
	sources := strings.Fields(git(t, root, "ls-files", "*.go"))
	for _, block := range fenced.FindAllStringSubmatch(readme, -1) {
		if block[1] != "go" {
			continue
		}
		i := slices.IndexFunc(sources, func(name string) bool {
			text, err := os.ReadFile(filepath.Join(root, name))
			return err == nil && strings.HasSuffix(name, "_test.go") && strings.Contains(lines(string(text)), lines(block[2]))
		})
		if i < 0 {
			t.Errorf("README.md: no example has these lines:\n%s", block[2])
			continue
		}
		files = append(files, sources[i])
	}
	return slices.Compact(slices.Sorted(slices.Values(files)))
}

// Every module is published as its tags have it, and installed by users who have nothing else. It builds every module, so make
// test-short leaves it out.
func TestUsersInstallEveryModuleAndRunEveryProgramOfTheReadme(t *testing.T) {
	const version = "v0.1.0"
	p := proxy{filepath.Join(t.TempDir(), "proxy")}
	root := copyCheckout(t)
	r := makeRelease(t, root, version)
	for _, m := range r.published() {
		p.publish(t, root, m, version)
	}
	readme := readFile(t, root, "README.md")
	sash := r.published()[0].path

	t.Run("the command", func(t *testing.T) {
		u := newUser(t, p, sash)
		u.run(t, "go", "install", sash+"/service/cmd/sash@"+version)
		if got := u.run(t, filepath.Join("bin", "sash"), "--version"); !strings.HasPrefix(got, "sash "+version+", ") {
			t.Errorf("the installed command says %q", got)
		}
	})
	for _, m := range r.published()[1:] {
		t.Run(m.dir, func(t *testing.T) {
			u := newUser(t, p, sash)
			u.run(t, "go", "get", m.path+"@"+version)
			u.run(t, "go", "build", "-buildmode=archive", m.path+"/...") // which links no program
			if got := u.run(t, "go", "list", "-m", "-f", "{{.Version}}", sash); got != version {
				t.Errorf("it builds with %s %s, want %s", sash, got, version)
			}
		})
	}
	for _, name := range programs(t, root, readme) {
		t.Run(name, func(t *testing.T) {
			text := readFile(t, root, name)
			u := newUser(t, p, sash)
			put(t, filepath.Join(u.dir, path.Base(name)), text)
			u.run(t, "go", "get", sash+"@"+version)
			for _, imported := range imports.FindAllStringSubmatch(text, -1) {
				for _, m := range r.published()[1:] {
					if imported[1] == m.path || strings.HasPrefix(imported[1], m.path+"/") {
						u.run(t, "go", "get", m.path+"@"+version)
					}
				}
			}
			if out := u.run(t, "go", "test", "-vet=off", "-v", "."); !strings.Contains(out, "--- PASS: Example") {
				t.Errorf("no example ran: %s", out)
			}
		})
	}
}

func readFile(t *testing.T, root, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
