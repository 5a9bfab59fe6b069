package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash/service/internal/cli"
)

func TestEveryCommandHasAPageWithItsFlags(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if name := "--" + f.Name; !strings.Contains(string(page), name) {
				t.Errorf("the page of %s has no %s", cmd.CommandPath(), name)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(cli.Command())
	verify, err := os.ReadFile(filepath.Join(dir, "sash-verify.1"))
	if err != nil || !strings.Contains(string(verify), ".EX\nfor every instant, the units admitted") {
		t.Errorf("an example is not one: %v\n%.1500s", err, verify)
	}
}
