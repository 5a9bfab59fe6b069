// Package output prints the answers of commands as JSON or text, and the version of their binary.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes an answer, as JSON or as the text that describe writes.
func Print(to io.Writer, asJSON bool, answer any, describe func(*Text)) error {
	if asJSON {
		encoder := json.NewEncoder(to)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(answer)
	}
	t := &Text{to: to}
	describe(t)
	return t.err
}

// A Text is output for people. After a write error it writes nothing more.
type Text struct {
	to  io.Writer
	err error // the first
}

// Write implements io.Writer.
func (t *Text) Write(p []byte) (n int, err error) {
	if t.err == nil {
		n, t.err = t.to.Write(p)
	}
	return n, t.err
}

// Say writes a line.
func (t *Text) Say(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// Rows writes a table. The flags are those of tabwriter.
func (t *Text) Rows(flags uint, rows [][]string) {
	table := tabwriter.NewWriter(t, 0, 0, 2, ' ', flags)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // the text keeps the error
}

// Count returns a number with the noun that it counts.
func Count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

// Bytes returns a number of bytes for people.
func Bytes(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}

// Printable shortens s and replaces control characters, which could move the terminal's cursor or fill the screen.
func Printable(s string) string {
	const most = 70
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}

// Version returns the version and the commit of this binary. The commit is unknown unless the binary was built in a
// Git checkout. The version is "devel" unless the binary was built from a tag, or with go install and a version.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown" // without modules, there is nothing to report
	}
	version, commit, changed := info.Main.Version, "unknown", ""
	if version == "" || version == "(devel)" {
		version = "devel"
	}
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
