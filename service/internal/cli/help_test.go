package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func visit(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		visit(sub, f)
	}
}

func TestHelpFitsIntoANarrowTerminal(t *testing.T) {
	help := func(cmd *cobra.Command) string {
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	whole := make(map[string]string)
	visit((&app{}).root(), func(cmd *cobra.Command) { whole[cmd.CommandPath()] = help(cmd) })
	for _, width := range []int{60, 80} {
		root := (&app{}).root()
		wrapHelp(root, width)
		visit(root, func(cmd *cobra.Command) {
			text := help(cmd)
			if want, got := strings.Fields(whole[cmd.CommandPath()]), strings.Fields(text); !slices.Equal(want, got) {
				t.Errorf("%s: the words are not the same in %d columns:\n%s", cmd.CommandPath(), width, text)
			}
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > width && !strings.HasPrefix(line, "  ") {
					t.Errorf("%s has a line of %d columns in %d: %s", cmd.CommandPath(), n, width, line)
				}
			}
		})
	}
	for in, want := range map[string]string{
		"one two three four\nfive six":       "one two\nthree four\nfive six",
		"a\n\n  an example is left\n\nb c d": "a\n\n  an example is left\n\nb c d",
		"  --flag  one two three":            "  --flag  one\n          two\n          three",
		"averylongword a":                    "averylongword\na",
	} {
		if got := reflow(in, 10); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
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
		{"allow --algorithm fi", "fixed-window", false},
		{"replay --algorithm gcra,sliding-l", "gcra,sliding-log", false},
		{"replay --retry n", "none naive", false},
		{"serve --log-level w", "warn", false},
		{"serve --config x", "", true},
		{"serve --redis x", "", false},
		{"allow --limit x", "", false},
		{"replay acc", "", true},
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
