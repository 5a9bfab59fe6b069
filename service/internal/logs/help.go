package logs

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Widths of help. A terminal that is narrower than the most gets lines of its own width.
const (
	helpColumns  = 100
	leastColumns = 40
)

// wrapHelp wraps the help of every command to the width of a terminal; 0 is none. It does so in the text that cobra writes:
// a template of our own would make the linker keep every method of every type, in case that the template calls it.
func wrapHelp(root *cobra.Command, width int) {
	if width == 0 || width > helpColumns {
		width = helpColumns
	}
	usage := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var text strings.Builder
		cmd.SetOut(&text)
		defer cmd.SetOut(out)
		if err := usage(cmd); err != nil {
			return err
		}
		wrapped := text.String()
		for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			if line := strings.TrimRight(flags.FlagUsages(), " \n"); line != "" {
				wrapped = strings.Replace(wrapped, line, strings.TrimRight(flags.FlagUsagesWrapped(width), " \n"), 1)
			}
		}
		_, err := io.WriteString(out, reflow(wrapped, width))
		return err
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		about := cmp.Or(cmd.Long, cmd.Short)
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n", reflow(strings.TrimRight(about, " \n"), width))
		if cmd.Runnable() || cmd.HasSubCommands() {
			cmd.SetOut(cmd.OutOrStdout())
			_ = cmd.Usage()
		}
	})
}

// listed is a line of a list: a name, and behind two spaces what it is.
var listed = regexp.MustCompile(`^( +\S.*? {2,})([^#\s].*)$`)

// reflow wraps the paragraphs of a text that has lines of helpColumns, and the lines of lists. Other lines that begin with
// a space are examples and stay as they are.
func reflow(text string, width int) string {
	if width >= helpColumns {
		return text
	}
	var out, paragraph []string
	end := func() {
		out = append(out, wrap("", strings.Join(paragraph, " "), width)...)
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		parts := listed.FindStringSubmatch(line)
		if utf8.RuneCountInString(line) > width && parts != nil {
			out = append(out, wrap(parts[1], parts[2], width)...)
		} else {
			out = append(out, line)
		}
	}
	end()
	return strings.Join(out, "\n")
}

// wrap returns the lines of a text behind a name, which stands in the first of them.
func wrap(name, text string, width int) (lines []string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(name))
	line := name
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	if !empty {
		lines = append(lines, line)
	}
	return lines
}
