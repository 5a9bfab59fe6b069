package accesslog

import (
	"bytes"
	"encoding/json"
)

// cri takes off what the kubelet's runtimes write: a time, the stream, and F for a whole line or P for a part of one.
type cri struct {
	parts [2][]byte // of the streams
	long  [2]bool
}

func (c *cri) unwrap(line []byte) ([]byte, error) {
	at, line, ok := bytes.Cut(line, []byte(" "))
	if !ok || !isRFC3339(at) {
		return nil, errWrapping
	}
	name, line, _ := bytes.Cut(line, []byte(" "))
	stream := 0
	switch string(name) {
	case "stdout":
	case "stderr":
		stream = 1
	default:
		return nil, errWrapping
	}
	tags, line, _ := bytes.Cut(line, []byte(" "))
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	switch string(tag) {
	case "F":
		return joined(&c.parts[stream], &c.long[stream], line)
	case "P":
		keep(&c.parts[stream], &c.long[stream], line)
		return nil, errPartial
	}
	return nil, errWrapping
}

// rest implements joiner.
func (c *cri) rest() []byte {
	for i := range c.parts {
		if len(c.parts[i]) > 0 {
			part := c.parts[i]
			c.parts[i] = nil
			return part
		}
	}
	return nil
}

// keep appends a part of a line, up to maxLine.
func keep(parts *[]byte, long *bool, part []byte) {
	room := maxLine - len(*parts)
	*long = *long || len(part) > room
	*parts = append(*parts, part[:min(len(part), room)]...)
}

// joined returns the parts and the last one as a line.
func joined(parts *[]byte, long *bool, last []byte) ([]byte, error) {
	if len(*parts) == 0 {
		return last, nil
	}
	keep(parts, long, last)
	line, tooLong := *parts, *long
	*parts, *long = (*parts)[:0], false
	if tooLong {
		return line, errLong
	}
	return line, nil
}

// A jsonWrapper takes the text out of an object, such as Docker's {"log":"…\n","stream":"stdout","time":"…"}.
type jsonWrapper struct {
	key, with string // with is another key that tells it from other objects, or ""
	ends      bool   // the text ends with the line's end, unless it goes on
	parts     []byte
	long      bool
}

func (w *jsonWrapper) unwrap(line []byte) ([]byte, error) {
	if len(line) == 0 || line[0] != '{' || !bytes.Contains(line, []byte(`"`+w.key+`"`)) {
		return nil, errWrapping
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(line, &object) != nil || object[w.key] == nil || w.with != "" && object[w.with] == nil {
		return nil, errWrapping
	}
	text, ok := jsonText(object[w.key])
	if !ok {
		return nil, errWrapping
	}
	if !w.ends {
		return bytes.TrimRight(text, "\r\n"), nil
	}
	// Fluent Bit and others take the line's end away, and join parts themselves.
	if !bytes.HasSuffix(text, []byte("\n")) && object["stream"] != nil && object["time"] != nil && len(object) <= 4 {
		keep(&w.parts, &w.long, text)
		return nil, errPartial
	}
	return joined(&w.parts, &w.long, bytes.TrimRight(text, "\r\n"))
}

// rest implements joiner.
func (w *jsonWrapper) rest() []byte {
	part := w.parts
	w.parts = nil
	return part
}

// jsonText returns a string, or the list of bytes that journald writes for what is not text.
func jsonText(raw json.RawMessage) ([]byte, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return []byte(text), true
	}
	var list []int
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return nil, false
	}
	out := make([]byte, len(list))
	for i, b := range list {
		out[i] = byte(b)
	}
	return out, true
}
