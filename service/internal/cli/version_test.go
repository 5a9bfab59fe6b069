package cli

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionNamesReleaseCommitAndGo(t *testing.T) {
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "3f2a"}, {Key: "vcs.modified", Value: modified}}
	}
	for _, c := range []struct {
		name, want string
		info       debug.BuildInfo
	}{
		{"a release, installed", "v0.2.0, commit unknown, go1.26.0",
			debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.2.0"}}},
		{"a checkout", "devel, commit 3f2a, go1.26.0",
			debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}, Settings: settings("false")}},
		{"a checkout with changes", "devel, commit 3f2a with local changes, go1.26.0",
			debug.BuildInfo{GoVersion: "go1.26.0", Settings: settings("true")}},
	} {
		if got := versionOf(&c.info); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTheVersionOfThisBinary(t *testing.T) {
	var out strings.Builder
	if code := Run(t.Context(), []string{"--version"}, nil, &out, &out, os.Getenv); code != 0 || !strings.HasPrefix(out.String(), "sash version devel, ") {
		t.Errorf("exit %d, %q", code, out.String())
	}
}
