package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// release commits the version of all modules, with its section of CHANGELOG.md, and tags every published module. It
// returns what to do next: it pushes nothing. After an error the checkout is as it was.
func (r *repository) release(ctx context.Context, version string, now time.Time) (next string, err error) {
	if err := checkVersion(version); err != nil {
		return "", err
	}
	run := runner{ctx: ctx, dir: r.root}
	branch := run.output("git", "symbolic-ref", "--short", "HEAD")
	changes, known := run.output("git", "status", "--porcelain"), run.output("git", "tag", "--list")
	before := run.output("git", "rev-parse", "HEAD")
	if run.err != nil {
		return "", fmt.Errorf("check out the branch to release: %w", run.err)
	}
	if changes != "" {
		return "", fmt.Errorf("commit or remove what is not in the last commit:\n%s", changes)
	}
	var tags []string
	for _, m := range r.published() {
		tags = append(tags, m.tag(version))
	}
	if err := checkTags(strings.Fields(known), tags, version); err != nil {
		return "", err
	}
	changelog, err := r.datedChangelog(version, now)
	if err != nil {
		return "", err
	}
	var made []string
	defer func() {
		if err != nil {
			undo := runner{ctx: context.WithoutCancel(ctx), dir: r.root}
			undo.output("git", "reset", "--quiet", "--hard", before)
			for _, tag := range made {
				undo.output("git", "tag", "--delete", tag)
			}
			err = errors.Join(err, undo.err)
		}
	}()
	if err := r.setVersion(version); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(r.root, "CHANGELOG.md"), changelog, 0o644); err != nil {
		return "", err
	}
	run.output("go", "list", "-deps", "work")
	run.output("git", "commit", "--quiet", "--all", "--message", "release: "+version)
	for _, tag := range tags {
		if run.output("git", "tag", "--annotate", "--message", "sash "+version, tag); run.err == nil {
			made = append(made, tag)
		}
	}
	if run.err != nil {
		return "", run.err
	}
	all := strings.Join(tags, " ")
	return fmt.Sprintf(`%s is committed on %s and tagged in %d modules. Nothing is pushed yet.

To publish it:
  git push --atomic origin %s %s

To take it back:
  git tag --delete %s
  git reset --hard %s
`, version, branch, len(tags), branch, all, all, before), nil
}

// A runner runs commands in a directory until one fails.
type runner struct {
	ctx context.Context
	dir string
	err error
}

// output returns what a command printed, or "" after an error.
func (r *runner) output(name string, args ...string) (out string) {
	if r.err == nil {
		out, r.err = output(r.ctx, r.dir, nil, name, args...)
	}
	return out
}

// checkVersion refuses what the go command would not take as the version of these modules.
func checkVersion(version string) error {
	switch {
	case semver.Canonical(version) != version || version == "":
		return fmt.Errorf("%q is not a version: want one such as v0.2.0 or v0.2.0-rc.1", version)
	case semver.Compare(version, "v2") >= 0:
		return fmt.Errorf("%s needs other module paths: from version 2 on, each ends in the major version (https://go.dev/ref/mod#major-version-suffixes)", version)
	}
	return nil
}

// checkTags refuses a version that has been released, in part or as a whole, and one that is not after the last release.
func checkTags(known, wanted []string, version string) error {
	for _, tag := range wanted {
		if slices.Contains(known, tag) {
			return fmt.Errorf("the tag %s exists: a version that was published cannot change, so choose the next one", tag)
		}
	}
	for _, tag := range known {
		if semver.IsValid(tag) && semver.Compare(tag, version) > 0 {
			return fmt.Errorf("%s is before %s, which is tagged: choose a version after it", version, tag)
		}
	}
	return nil
}

// datedChangelog returns CHANGELOG.md with what was under Unreleased under the version and the date.
func (r *repository) datedChangelog(version string, now time.Time) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	const heading = "\n## [Unreleased]\n"
	_, after, ok := bytes.Cut(text, []byte(heading))
	section, _, _ := bytes.Cut(after, []byte("\n## "))
	if !ok || !bytes.Contains(section, []byte("\n- ")) {
		return nil, errors.New("CHANGELOG.md has no entry under ## [Unreleased]: say what changes for users")
	}
	dated := fmt.Sprintf("%s\n## [%s] - %s\n", heading, strings.TrimPrefix(version, "v"), now.UTC().Format(time.DateOnly))
	return bytes.Replace(text, []byte(heading), []byte(dated), 1), nil
}
