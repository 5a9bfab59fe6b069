package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var today = time.Date(2030, 2, 28, 23, 0, 0, 0, time.UTC)

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

// commitFiles makes a Git repository whose only commit has these files.
func commitFiles(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(root, name), text)
	}
	commitAll(t, root)
	return root
}

// commitAll makes a Git repository of a directory, with a commit of all that is in it.
func commitAll(t *testing.T, root string) {
	t.Helper()
	git(t, root, "init", "--quiet", "--initial-branch", "main")
	for name, value := range map[string]string{
		"user.name": "Test", "user.email": "test@example.com", "commit.gpgSign": "false", "tag.gpgSign": "false", "core.hooksPath": os.DevNull,
	} {
		git(t, root, "config", name, value)
	}
	git(t, root, "add", "--all")
	git(t, root, "commit", "--quiet", "--message", "all")
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, root string, args ...string) string {
	t.Helper()
	out, err := output(t.Context(), root, nil, "git", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tag loads a repository and releases a version of it.
func tag(t *testing.T, root, version string) (string, error) {
	t.Helper()
	r, err := load(root)
	if err != nil {
		return "", err
	}
	return r.release(t.Context(), version, today)
}

func TestReleaseTagsEachPublishedModule(t *testing.T) {
	root := commitFiles(t, small)
	next, err := tag(t, root, "v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	if want := "git push --atomic origin main v0.2.0 a/v0.2.0 b/v0.2.0\n"; !strings.Contains(next, want) {
		t.Errorf("it prints\n%s\nwithout\n%s", next, want)
	}
	if got := git(t, root, "tag", "--list"); got != "a/v0.2.0\nb/v0.2.0\nv0.2.0" {
		t.Errorf("the tags are %q", got)
	}
	if got := git(t, root, "status", "--porcelain") + git(t, root, "log", "--format=%s"); got != "release: v0.2.0\nall" {
		t.Errorf("status and log: %s", got)
	}
	for _, name := range []string{"b/go.mod", "a/go.mod", "internal/x/go.mod", "go.work"} {
		want := strings.ReplaceAll(small[name], "v0.1.0", "v0.2.0")
		if got := git(t, root, "show", "b/v0.2.0:"+name) + "\n"; got != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
	if got := git(t, root, "show", "v0.2.0:CHANGELOG.md"); got != "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2030-02-28\n\n- All." {
		t.Errorf("the changelog is\n%s", got)
	}
}

func TestReleaseThatIsRefusedLeavesNothingBehind(t *testing.T) {
	for _, c := range []struct {
		name, version, say string
		before             func(t *testing.T, root string)
	}{
		{"no version", "", `"" is not a version: want one such as v0.2.0`, nil},
		{"without v", "0.2.0", `"0.2.0" is not a version`, nil},
		{"two numbers", "v0.2", "is not a version", nil},
		{"build metadata", "v0.2.0+linux", "is not a version", nil},
		{"major version 2", "v2.0.0", "from version 2 on", nil},
		{"a changed file", "v0.2.0", "commit or remove what is not in the last commit:\n M r.go", func(t *testing.T, root string) {
			put(t, filepath.Join(root, "r.go"), "package r // changed\n")
		}},
		{"a new file", "v0.2.0", "?? new", func(t *testing.T, root string) { put(t, filepath.Join(root, "new"), "") }},
		{"no branch", "v0.2.0", "check out the branch to release", func(t *testing.T, root string) { git(t, root, "checkout", "--quiet", "--detach") }},
		{"a tag of the root module", "v0.2.0", "the tag v0.2.0 exists", func(t *testing.T, root string) { git(t, root, "tag", "v0.2.0") }},
		{"a tag of another module", "v0.2.0", "the tag b/v0.2.0 exists", func(t *testing.T, root string) { git(t, root, "tag", "b/v0.2.0") }},
		{"before the last release", "v0.2.0", "v0.2.0 is before v0.10.0", func(t *testing.T, root string) { git(t, root, "tag", "v0.10.0") }},
		{"a candidate after its release", "v0.2.0-rc.1", "is before v0.2.0", func(t *testing.T, root string) { git(t, root, "tag", "v0.2.0") }},
		{"nothing in the changelog", "v0.2.0", "CHANGELOG.md has no entry under ## [Unreleased]", func(t *testing.T, root string) {
			put(t, filepath.Join(root, "CHANGELOG.md"), "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2030-01-01\n\n- All.\n")
			git(t, root, "commit", "--quiet", "--all", "--message", "changelog")
		}},
		{"an import that no module provides", "v0.2.0", "example.com/r/c", func(t *testing.T, root string) {
			put(t, filepath.Join(root, "a", "a.go"), "package a\n\nimport _ \"example.com/r/c\"\n")
			git(t, root, "commit", "--quiet", "--all", "--message", "c")
		}},
		{"a tag that Git cannot make, after one that it made", "v0.2.0", "refs/tags/a", func(t *testing.T, root string) { git(t, root, "tag", "a") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := commitFiles(t, small)
			if c.before != nil {
				c.before(t, root)
			}
			state := func() string {
				return git(t, root, "rev-parse", "HEAD") + git(t, root, "status", "--porcelain") + git(t, root, "tag", "--list") +
					git(t, root, "diff") + git(t, root, "branch", "--show-current")
			}
			before := state()
			next, err := tag(t, root, c.version)
			if err == nil || next != "" || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%q, %v; want an error that says %q", next, err, c.say)
			}
			if after := state(); after != before {
				t.Errorf("the checkout was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

func TestTidyMendsWhatModulesRequireAndKeepsTheirVersion(t *testing.T) {
	files := maps.Clone(small) // b uses the root module and does not require it; a requires one that it does not use
	files["b/go.mod"] = "module example.com/r/b\n\ngo 1.26\n\nrequire (\n\texample.com/r/a v0.1.0 // for its cache\n)\n"
	files["a/go.mod"] += "\nrequire example.com/r/internal/unused v0.1.0\n"
	root := commitFiles(t, files)
	r, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	var progress strings.Builder
	if err := r.tidy(t.Context(), &progress); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(progress.String()); !slices.Equal(got, []string{".", "a", "b", "internal/x"}) {
		t.Errorf("it tidies %q", got)
	}
	for _, name := range []string{"go.mod", "a/go.mod", "b/go.mod", "internal/x/go.mod"} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != small[name] {
			t.Errorf("%s is\n%s\nwant\n%s(%v)", name, got, small[name], err)
		}
	}
}
