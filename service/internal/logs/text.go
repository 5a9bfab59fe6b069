package logs

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// answer writes an answer: as JSON, or as the text that describe writes.
func (l *logs) answer(to io.Writer, answer any, describe func(*text)) error {
	if l.json {
		encoder := json.NewEncoder(to)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(answer)
	}
	t := &text{to: to}
	describe(t)
	return t.err
}

// A text is output for people. After an error of its writer it writes nothing more.
type text struct {
	to  io.Writer
	err error // the first
}

// Write implements io.Writer.
func (t *text) Write(p []byte) (n int, err error) {
	if t.err == nil {
		n, t.err = t.to.Write(p)
	}
	return n, t.err
}

// say writes a line.
func (t *text) say(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// rows writes a table. The flags are those of tabwriter.
func (t *text) rows(flags uint, rows [][]string) {
	table := tabwriter.NewWriter(t, 0, 0, 2, ' ', flags)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // the text keeps the error
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

func part(n int64, share float64) string { return fmt.Sprintf("%d (%.2f%%)", n, 100*share) }

// printable shortens s and replaces control characters, so that input cannot move the terminal's cursor or fill the
// screen.
func printable(s string) string {
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

// shellText returns an argument as a shell takes it.
func shellText(arg string) string {
	plain := func(c rune) bool {
		return strings.ContainsRune("_-./:=,@%+", c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	if arg != "" && strings.TrimFunc(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// secondsText returns a duration for people: two units at most, and seconds at least.
func secondsText(seconds float64) string {
	const day = 24 * 60 * 60
	length := time.Duration(seconds * 1e9)
	switch {
	case seconds >= 2*day:
		return strconv.FormatFloat(math.Round(10*seconds/day)/10, 'f', -1, 64) + " days"
	case seconds >= 60*60:
		return strings.TrimSuffix(length.Round(time.Minute).String(), "0s")
	case seconds > 0 && seconds < 1:
		return length.Round(time.Millisecond).String()
	}
	return length.Round(time.Second).String()
}
