package arch_test

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A repository of a root module, two that build on it, and one that is not published. In go.work they are in an order in
// which they cannot be published.
var small = map[string]string{
	"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n- All.\n",
	"go.mod":       "module example.com/r\n\ngo 1.26\n",
	"r.go":         "package r\n",
	"b/go.mod":     "module example.com/r/b\n\ngo 1.26\n\nrequire (\n\texample.com/r v0.1.0\n\texample.com/r/a v0.1.0 // for its cache\n)\n",
	"b/b.go":       "package b\n\nimport (\n\t_ \"example.com/r\"\n\t_ \"example.com/r/a\"\n)\n",
	"a/go.mod":     "module example.com/r/a\n\ngo 1.26\n\nrequire example.com/r v0.1.0\n",
	"a/a.go":       "package a\n\nimport _ \"example.com/r\"\n",
	"internal/x/go.mod": "module example.com/r/internal/x\n\ngo 1.26\n\nrequire example.com/r/b v0.1.0\n\n" +
		"require (\n\texample.com/r v0.1.0 // indirect\n\texample.com/r/a v0.1.0 // indirect\n)\n",
	"internal/x/x.go": "package x\n\nimport _ \"example.com/r/b\"\n",
	"go.work": "go 1.26\n\nuse (\n\t./internal/x\n\t./b\n\t./a\n\t.\n)\n\n// Joined.\nreplace (\n" +
		"\texample.com/r v0.1.0 => ./\n\texample.com/r/a v0.1.0 => ./a\n\texample.com/r/b v0.1.0 => ./b\n)\n",
}

// A checkout is a Git repository whose only commit has some files.
type checkout struct{ dir string }

func commit(t *testing.T, files map[string]string) checkout {
	t.Helper()
	c := checkout{t.TempDir()}
	for name, text := range files {
		c.put(t, name, text)
	}
	c.git(t, "init", "--quiet", "--initial-branch", "main")
	for name, value := range map[string]string{
		"user.name": "Test", "user.email": "test@example.com", "commit.gpgSign": "false", "tag.gpgSign": "false", "core.hooksPath": os.DevNull,
	} {
		c.git(t, "config", name, value)
	}
	c.git(t, "add", "--all")
	c.git(t, "commit", "--quiet", "--message", "all")
	return c
}

func (c checkout) put(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs a program in the checkout, without the workspace that the test runs in.
func (c checkout) run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "GOWORK=", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// release runs .ci/release of this repository.
func (c checkout) release(t *testing.T, args ...string) (string, error) {
	t.Helper()
	script, err := filepath.Abs(filepath.Join(repository, ".ci/release"))
	if err != nil {
		t.Fatal(err)
	}
	return c.run(t, script, args...)
}

func (c checkout) git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(t, "git", args...)
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return out
}

func TestReleaseTagsEachPublishedModule(t *testing.T) {
	c := commit(t, small)
	next, err := c.release(t, "tag", "v0.2.0")
	if want := "git push --atomic origin main v0.2.0 a/v0.2.0 b/v0.2.0\n"; err != nil || !strings.Contains(next, want) {
		t.Fatalf("%v; it prints\n%s\nwithout\n%s", err, next, want)
	}
	if got := c.git(t, "tag", "--list"); got != "a/v0.2.0\nb/v0.2.0\nv0.2.0\n" {
		t.Errorf("the tags are %q", got)
	}
	if got := c.git(t, "status", "--porcelain") + c.git(t, "log", "--format=%s"); got != "release: v0.2.0\nall\n" {
		t.Errorf("status and log: %s", got)
	}
	for _, name := range []string{"go.mod", "b/go.mod", "a/go.mod", "internal/x/go.mod", "go.work"} {
		if got, want := c.git(t, "show", "b/v0.2.0:"+name), strings.ReplaceAll(small[name], "v0.1.0", "v0.2.0"); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
	changed := regexp.MustCompile(`^# Changelog\n\n## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d\n\n- All\.\n$`)
	if got := c.git(t, "show", "v0.2.0:CHANGELOG.md"); !changed.MatchString(got) {
		t.Errorf("the changelog is\n%s", got)
	}
}

func TestReleaseThatIsRefusedLeavesNothingBehind(t *testing.T) {
	c := commit(t, small)
	edit := func(name, text string) func() {
		return func() { c.put(t, name, text); c.git(t, "commit", "--quiet", "--all", "--message", "edited") }
	}
	git := func(args ...string) func() { return func() { c.git(t, args...) } }
	first := c.git(t, "rev-parse", "HEAD")
	for _, r := range []struct {
		name, version, say string
		before             func()
	}{
		{"no version", "", `"" is not a version: want one such as v0.2.0`, nil},
		{"without v", "0.2.0", `"0.2.0" is not a version`, nil},
		{"two numbers", "v0.2", "is not a version", nil},
		{"build metadata", "v0.2.0+linux", "is not a version", nil},
		{"major version 2", "v2.0.0", "from version 2 on", nil},
		{"a changed file", "v0.2.0", "commit or remove what is not in the last commit:\n M r.go", func() { c.put(t, "r.go", "package r // changed\n") }},
		{"a new file", "v0.2.0", "?? new", func() { c.put(t, "new", "") }},
		{"no branch", "v0.2.0", "check out the branch to release", git("checkout", "--quiet", "--detach")},
		{"a tag of the root module", "v0.2.0", "the tag v0.2.0 exists", git("tag", "v0.2.0")},
		{"a tag of another module", "v0.2.0", "the tag b/v0.2.0 exists", git("tag", "b/v0.2.0")},
		{"before the last release", "v0.2.0", "v0.2.0 is before v0.10.0", git("tag", "v0.10.0")},
		{"a candidate after its release", "v0.2.0-rc.1", "is before v0.2.0", git("tag", "v0.2.0")},
		{
			"nothing in the changelog", "v0.2.0", "CHANGELOG.md has no entry under ## [Unreleased]",
			edit("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2030-01-01\n\n- All.\n"),
		},
		{"an import that no module provides", "v0.2.0", "example.com/r/c", edit("a/a.go", "package a\n\nimport _ \"example.com/r/c\"\n")},
		{"a tag that Git cannot make, after one that it made", "v0.2.0", "refs/tags/a", git("tag", "a")},
	} {
		t.Run(r.name, func(t *testing.T) {
			c.git(t, "checkout", "--quiet", "--force", "-B", "main", strings.TrimSpace(first))
			c.git(t, "clean", "--quiet", "--force")
			c.git(t, append([]string{"tag", "--delete"}, strings.Fields(c.git(t, "tag", "--list"))...)...)
			if r.before != nil {
				r.before()
			}
			state := func() string {
				return c.git(t, "status", "--porcelain", "--branch") + c.git(t, "for-each-ref") + c.git(t, "diff")
			}
			before := state()
			if out, err := c.release(t, "tag", r.version); err == nil || !strings.Contains(out, r.say) {
				t.Errorf("%v; it prints %q, want %q", err, out, r.say)
			}
			if after := state(); after != before {
				t.Errorf("the checkout was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

func TestTidyMendsWhatModulesRequireAndKeepsTheirVersion(t *testing.T) {
	files := maps.Clone(small) // b uses the root module and does not require it; both require one that they do not use
	files["b/go.mod"] = strings.Replace(files["b/go.mod"], "example.com/r v0.1.0", "example.com/r/internal/x v0.1.0", 1)
	files["a/go.mod"] += "\nrequire example.com/r/internal/unused v0.1.0\n"
	c := commit(t, files)
	if out, err := c.release(t, "tidy"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"go.mod", "a/go.mod", "b/go.mod", "internal/x/go.mod"} {
		if got, err := os.ReadFile(filepath.Join(c.dir, name)); err != nil || string(got) != small[name] {
			t.Errorf("%s is\n%s\nwant\n%s(%v)", name, got, small[name], err)
		}
	}
}

// A program of a module elsewhere, made of the examples of README.md, takes the modules from a checkout as README.md says.
// What it runs is what the checkout's own tests run.
func TestAProgramTakesTheModulesFromACheckout(t *testing.T) {
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	c := checkout{t.TempDir()}
	c.put(t, "go.mod", "module "+modulePath(t)+"/user\n\ngo 1.26.0\n") // whose examples may import the tests' Redis
	programs := 0
	for _, b := range blocks(t, "README.md") {
		switch text := strings.Join(b.lines, "\n"); {
		case strings.Contains(text, "go mod edit -replace"):
			edit := strings.Split(text, "\n")[0]
			for _, dir := range modules(t) { // and those that other examples use
				if published(dir) && dir != "." {
					edit += " -replace " + path.Join(modulePath(t), dir) + "=../sash/" + dir
				}
			}
			if out, err := c.run(t, "sh", "-ec", strings.ReplaceAll(edit, "=../sash", "="+root)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		case b.language == "go":
			programs++
			walk(t, func(name string) {
				if example := path.Base(name); strings.HasPrefix(example, "example_") && strings.Contains(unindented(read(t, name)), unindented(text)) {
					c.put(t, path.Join(strings.TrimSuffix(name, "_test.go"), example), read(t, name))
				}
			})
		}
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"test", "-vet=off", "-v", "./..."}} {
		out, err := c.run(t, "go", args...)
		if passed := strings.Count(out, "--- PASS: Example"); err != nil || args[0] == "test" && passed < programs {
			t.Fatalf("go %q: %v; %d examples passed, and README.md has %d programs\n%s", args, err, passed, programs, out)
		}
	}
}
