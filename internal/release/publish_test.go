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
func newUser(t *testing.T, p proxy) user {
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
	u.run(t, "go", "mod", "init", "example.org/user")
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

// version returns the version of a module that the user's module builds with.
func (u user) version(t *testing.T, path string) string {
	t.Helper()
	return u.run(t, "go", "list", "-m", "-f", "{{.Version}}", path)
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

// renameInternals gives every internal package of the root module another path. A module that imports one does not build
// with the next version of the root module.
func renameInternals(t *testing.T, root string, r *repository) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	var swaps []string
	for _, e := range entries {
		dir := "internal/" + e.Name()
		if slices.ContainsFunc(r.modules, func(m module) bool { return m.dir == dir }) {
			continue
		}
		git(t, root, "mv", dir, dir+"next")
		swaps = append(swaps, r.published()[0].path+"/"+dir+`"`, r.published()[0].path+"/"+dir+`next"`)
	}
	for name := range strings.SplitSeq(git(t, root, "ls-files", "-z", "*.go"), "\x00") {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(root, name), strings.NewReplacer(swaps...).Replace(string(text)))
	}
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

// Every module is published as its tags have it, and installed by users who have nothing else: all modules at one version,
// and the other modules with the version of the root module that follows theirs. It builds every module three times,
// so make test-short leaves it out.
func TestUsersInstallEveryModuleAndRunEveryProgramOfTheReadme(t *testing.T) {
	const first, second = "v0.1.0", "v0.2.0"
	p := proxy{filepath.Join(t.TempDir(), "proxy")}
	root := copyCheckout(t)
	r := makeRelease(t, root, first)
	for _, m := range r.published() {
		p.publish(t, root, m, first)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	sash := r.published()[0].path

	t.Run("the commands of the README", func(t *testing.T) {
		u := newUser(t, p)
		ran := 0
		for _, block := range fenced.FindAllStringSubmatch(readme, -1) {
			for line := range strings.Lines(block[2]) {
				command, _, _ := strings.Cut(line, "#")
				if strings.HasPrefix(command, "go get ") || strings.HasPrefix(command, "go install ") {
					u.run(t, "sh", "-c", command)
					ran++
				}
			}
		}
		if got := u.version(t, sash); ran < 2 || got != first {
			t.Fatalf("%d commands install %s %s, want go get and go install, and %s", ran, sash, got, first)
		}
		if got := u.run(t, filepath.Join("bin", "sash"), "--version"); !strings.HasPrefix(got, "sash "+first+", ") {
			t.Errorf("the installed command says %q", got)
		}
	})
	install := func(t *testing.T, root string, rootVersion string) {
		for _, m := range r.published()[1:] {
			t.Run(m.dir, func(t *testing.T) {
				if !strings.Contains(readme, "`"+m.path+"`") && !strings.Contains(readme, m.path+"/cmd") {
					t.Errorf("README.md does not name the module %s", m.path)
				}
				u := newUser(t, p)
				u.run(t, "go", "get", m.path+"@"+first)
				if rootVersion == first {
					u.run(t, "go", "build", "-buildmode=archive", m.path+"/...") // which links no program
				} else {
					u.run(t, "go", "get", sash+"@"+rootVersion)
					u.run(t, "go", "list", "-deps", m.path+"/...") // finds every import; the code is the same
				}
				if got := u.version(t, sash); got != rootVersion {
					t.Errorf("it builds with %s %s, want %s", sash, got, rootVersion)
				}
			})
		}
		for _, name := range programs(t, root, readme) {
			t.Run(name, func(t *testing.T) {
				text, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				u := newUser(t, p)
				put(t, filepath.Join(u.dir, path.Base(name)), string(text))
				u.run(t, "go", "get", sash+"@"+rootVersion)
				for _, imported := range imports.FindAllStringSubmatch(string(text), -1) {
					for _, m := range r.published()[1:] {
						if imported[1] == m.path || strings.HasPrefix(imported[1], m.path+"/") {
							u.run(t, "go", "get", m.path+"@"+first)
						}
					}
				}
				if out := u.run(t, "go", "test", "-vet=off", "-v", "."); !strings.Contains(out, "--- PASS: Example") {
					t.Errorf("no example ran: %s", out)
				}
			})
		}
	}
	t.Run("at one version", func(t *testing.T) { install(t, root, first) })

	renameInternals(t, root, r)
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "CHANGELOG.md"), strings.Replace(string(changelog), "## [Unreleased]\n", "## [Unreleased]\n\n- Other internals.\n", 1))
	git(t, root, "commit", "--quiet", "--all", "--message", "other internals")
	p.publish(t, root, makeRelease(t, root, second).published()[0], second)
	t.Run("one version behind the root module", func(t *testing.T) { install(t, root, second) })
}
