package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
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

func TestHelpFitsIntoAHundredColumns(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > helpColumns {
				t.Errorf("%s has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).root())
}

func TestWhatMayBeAPasswordIsNotShown(t *testing.T) {
	const url = `redis://:se"cret@127.0.0.1:1`
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"doctor", url}, "give the address with --redis"},
		{[]string{"doctor", "secret"}, "give the address with --redis"},
		{[]string{"verify", url}, "give the address with --redis"},
		{[]string{"verify", "--json", url}, "give the address with --redis"},
		{[]string{url}, "not shown"},
		{[]string{"user:se\"cret@127.0.0.1:1"}, "not shown"},
		{[]string{"serve", url}, "not shown"},
		{[]string{"doctor", "--budget", url}, "not shown"},
		{[]string{"doctor", "--budget=" + url}, "not shown"},
		{[]string{"allow", "--limit", url, "k"}, "not shown"},
	} {
		var out, err strings.Builder
		code := Run(t.Context(), c.args, nil, &out, &err, func(string) string { return "" })
		all := out.String() + err.String()
		if code != exitError || !strings.Contains(all, c.say) || strings.Contains(all, "cret") {
			t.Errorf("%q: exit %d, %s", c.args, code, all)
		}
	}
	var out, err strings.Builder
	Run(t.Context(), []string{"allow", "--limit", "x/day@Mars/Base", "k"}, nil, &out, &err, func(string) string { return "" })
	if !strings.Contains(err.String(), "x/day@Mars/Base") {
		t.Errorf("a limit with a zone is not shown: %s", err.String())
	}
}
