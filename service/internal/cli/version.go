package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// addVersion gives the root command its --version flag and the version command, which print the same line.
func (a *app) addVersion(root *cobra.Command) {
	root.Version = "unknown" // cobra adds the flag for any text; built without modules, there is nothing to report
	if info, ok := debug.ReadBuildInfo(); ok {
		root.Version = versionOf(info)
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.out, "%s %s\n", root.Name(), root.Version)
			return err
		},
	})
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
