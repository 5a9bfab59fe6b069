package logs

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// addVersion gives the root command a --version flag and a version command, which print the same line. The flag is ours:
// cobra's would need a template for that line, see wrapFlags.
func (a *app) addVersion(root *cobra.Command) {
	write := func(*cobra.Command, []string) error {
		_, err := fmt.Fprintf(a.out, "%s %s\n", root.Name(), version())
		return err
	}
	flag, otherwise := root.Flags().BoolP("version", "v", false, "version for "+root.Name()), root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *flag {
			return write(cmd, args)
		}
		return otherwise(cmd, args)
	}
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go version of this binary",
		Args:  cobra.NoArgs,
		RunE:  write,
	})
}

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
