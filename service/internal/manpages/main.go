// Command manpages writes a man page for each command of sash and sash-logs into a folder:
//
//	go run ./internal/manpages ../bin/man/man1
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"example.com/sash/service/internal/cli"
	"example.com/sash/service/internal/logs"
)

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: manpages FOLDER"))
	}
	if err := write(os.Args[1]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "manpages:", err)
	os.Exit(1)
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, root := range []*cobra.Command{cli.Command(), logs.Command()} {
		prepare(root)
		if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Sash", Manual: "Sash"}, dir); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes examples of the help code blocks, as Markdown has them, of which the pages are made.
func prepare(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	var text []string
	for line := range strings.SplitSeq(cmd.Long, "\n") {
		if strings.HasPrefix(line, "  ") {
			line = "  " + line
		}
		text = append(text, line)
	}
	cmd.Long = strings.Join(text, "\n")
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}
