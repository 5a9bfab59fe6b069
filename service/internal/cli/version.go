package cli

import (
	"fmt"
	"runtime/debug"
)

// version returns the version of this binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown" // built without modules, there is nothing to report
	}
	return versionOf(info)
}

// versionOf formats the build information of a binary. The commit is unknown unless the binary was built in a Git
// checkout; the version is "devel" unless it was built from a tag, or with go install and a version.
func versionOf(info *debug.BuildInfo) string {
	version := info.Main.Version
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	commit, changed := "unknown", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			changed = " with local changes"
		}
	}
	return fmt.Sprintf("%s, commit %s%s, %s", version, commit, changed, info.GoVersion)
}
