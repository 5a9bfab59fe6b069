package cli

import (
	"runtime"
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

func TestVersionIsAFlagAndACommand(t *testing.T) {
	for _, arg := range []string{"--version", "version"} {
		var out, err strings.Builder
		code := Run(t.Context(), []string{arg}, nil, &out, &err, func(string) string { return "" })
		if code != 0 || err.String() != "" || !strings.HasPrefix(out.String(), "sash ") || !strings.HasSuffix(out.String(), runtime.Version()+"\n") {
			t.Errorf("sash %s: exit %d, %q, %q", arg, code, out.String(), err.String())
		}
	}
}
