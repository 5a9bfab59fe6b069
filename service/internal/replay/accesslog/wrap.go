package accesslog

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// A wrapping is what a program that carries logs writes around each line of another program.
type wrapping struct {
	name string // for people
	// outermost means that the program writes files of its own, which nothing wraps.
	outermost bool
	before    *regexp.Regexp // what stands before a line
	key, with string         // or the key of an object that has the line, and another key that tells it from other objects
}

// mostWrappings is how deep wrappings nest: compose around a time around syslog, and one to spare.
const mostWrappings = 4

const (
	timePattern = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,0-9]*(?:Z|[+-][0-9:]{4,})`
	priority    = `^(?:\d+ <\d{1,3}>|<\d{1,3}>)?` // also behind the length of the message that a stream has before it
	tag         = `[^\s\[\]":,]+(?:\[[^\]\s]*\])?: `
	colour      = `(?:\x1b\[[0-9;]*m)?`
)

// wrappings are told apart in this order. A tag and a host may be missing in RFC 3164's form, and its time may be one of RFC
// 3339, as newer daemons and journalctl write it. CRI's runtimes write F for a whole line: the parts of one of more than
// 16 KB are not joined.
var wrappings = []wrapping{
	{name: "CRI (containerd, CRI-O)", outermost: true, before: regexp.MustCompile(`^` + timePattern + ` std(?:out|err) F(?::\S*)? `)},
	{name: "Docker's JSON", outermost: true, key: "log"},
	{name: "journald's JSON", outermost: true, key: "MESSAGE", with: "__REALTIME_TIMESTAMP"},
	{name: "syslog (RFC 5424)", before: regexp.MustCompile(priority + `1 (?:` + timePattern + `|-)(?: \S+){4} ` +
		`(?:-|(?:\[(?:[^"\]]|"(?:[^"\\]|\\.)*")*\])+) ?(?:` + byteOrderMark + `)?`)},
	{name: "syslog (RFC 3164)", before: regexp.MustCompile(priority +
		`(?:` + timePattern + `|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?:` + tag + `|[^\s",]+ (?:` + tag + `)?)`)},
	{name: "names of containers (compose)", before: regexp.MustCompile(`^` + colour + `[\w./-]+ +\| ?` + colour)},
	{name: "names of pods (kubectl --prefix)", before: regexp.MustCompile(`^\[pod/[^\s\]]+\] `)},
	{name: "a time before each line", before: regexp.MustCompile(`^` + timePattern + ` `)},
}

// unwrap returns what is wrapped. It reports false for a line without the wrapping.
func (w *wrapping) unwrap(line []byte) ([]byte, bool) {
	if w.before != nil {
		at := w.before.FindIndex(line)
		if at == nil {
			return nil, false
		}
		return line[at[1]:], true
	}
	if len(line) == 0 || line[0] != '{' || !bytes.Contains(line, []byte(`"`+w.key+`"`)) {
		return nil, false
	}
	var object map[string]json.RawMessage
	var text *string
	if json.Unmarshal(line, &object) != nil || json.Unmarshal(object[w.key], &text) != nil || text == nil {
		return nil, false
	}
	if w.with != "" && object[w.with] == nil {
		return nil, false
	}
	return bytes.TrimRight([]byte(*text), "\r\n"), true
}
