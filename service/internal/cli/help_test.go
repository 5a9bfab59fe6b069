package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The help of sash serve is read as a whole.
func TestHelpOfServe(t *testing.T) {
	var out strings.Builder
	if code := Run(t.Context(), []string{"serve", "--help"}, nil, &out, &out, func(string) string { return "" }); code != 0 {
		t.Fatal(code, out.String())
	}
	if n := len(strings.Fields(out.String())); n > 900 {
		t.Errorf("it has %d words", n)
	}
	if n := strings.Count(out.String(), "\n      --"); n > 30 {
		t.Errorf("it has %d flags", n)
	}
}

func visit(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		visit(sub, f)
	}
}

func completions(t *testing.T, args ...string) (values []string, files bool) {
	t.Helper()
	var out, failed strings.Builder
	if code := Run(t.Context(), append([]string{"__complete"}, args...), nil, &out, &failed, func(string) string { return "" }); code != 0 {
		t.Fatal(code, failed.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1] == ":0"
}

func TestShellsCompleteValues(t *testing.T) {
	for _, c := range []struct {
		args  string
		want  string
		files bool
	}{
		{"allow --algorithm x", "sliding-log sorted-set-log sliding-buckets sliding-counter fixed-window gcra", false},
		{"serve --log-level x", "debug info warn error", false},
		{"serve --config x", "", true},
		{"serve --redis x", "", false},
		{"allow --limit x", "", false},
		{"inspect k", "", false},
		{"ser", "serve", false},
	} {
		values, files := completions(t, strings.Fields(c.args)...)
		for i, v := range values {
			values[i], _, _ = strings.Cut(v, "\t")
		}
		if strings.Join(values, " ") != c.want || files != c.files {
			t.Errorf("%s: %q, files %v; want %q, %v", c.args, values, files, c.want, c.files)
		}
	}
}

// A flag whose usage names its values as "a, b or c" has them completed.
func TestFlagsWithFewValuesAreCompleted(t *testing.T) {
	visit((&app{}).root(), func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "-log, ") || strings.Contains(f.Usage, "debug, ") || strings.Contains(f.Usage, "none, ") {
				if choices(f.Name) == nil {
					t.Errorf("%s --%s has no completion: %s", cmd.CommandPath(), f.Name, f.Usage)
				}
			}
		})
	})
}
