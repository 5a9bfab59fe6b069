package accesslog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A Format is the format of the lines of a log.
type Format uint8

// The formats.
const (
	Auto     Format = iota // detected from the first lines
	Combined               // the common and the combined format of Apache and nginx
	JSON                   // one object per line: nginx, Caddy, Envoy and others
	CSV                    // the first line names the columns
	ALB                    // AWS application load balancers
)

var formatNames = []string{"auto", "combined", "json", "csv", "alb"}

// String returns the format's name, such as "combined".
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// ParseFormat parses a format's name.
func ParseFormat(name string) (Format, error) {
	if i := slices.Index(formatNames, name); i >= 0 {
		return Format(i), nil
	}
	return Auto, fmt.Errorf("unknown format %q: use one of auto, %s", name, formatList())
}

func formatList() string { return strings.Join(formatNames[1:], ", ") }

// detect returns the format of the first line that has a known one, or Auto.
func detect(start []byte, names naming) Format {
	first := true
	for line := range bytes.Lines(start) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			continue
		}
		var r Record
		switch {
		case line[0] == '{' && parseJSON(line, names, &r) == nil:
			return JSON
		case parseCombined(string(line), &r) == nil:
			return Combined
		case parseALB(string(line), &r) == nil:
			return ALB
		case first && bytes.IndexByte(line, ',') > 0:
			if _, err := newTable(string(line), names); err == nil {
				return CSV
			}
		}
		first = false
	}
	return Auto
}
