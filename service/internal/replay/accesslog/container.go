package accesslog

import (
	"bytes"
	"encoding/json"
)

// cri takes off what the kubelet's runtimes write: a time, the stream, and F for a whole line. One of more than 16 KB comes
// in parts, which are not joined.
func cri(line []byte) ([]byte, bool) {
	at, line, _ := bytes.Cut(line, []byte(" "))
	stream, line, _ := bytes.Cut(line, []byte(" "))
	tags, line, _ := bytes.Cut(line, []byte(" "))
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	return line, isRFC3339(at) && (string(stream) == "stdout" || string(stream) == "stderr") && string(tag) == "F"
}

// A jsonWrapper takes the text out of an object, such as Docker's {"log":"…\n","stream":"stdout","time":"…"}.
type jsonWrapper struct {
	key, with string // with is another key that tells it from other objects, or ""
}

func (w jsonWrapper) unwrap(line []byte) ([]byte, error) {
	if len(line) == 0 || line[0] != '{' || !bytes.Contains(line, []byte(`"`+w.key+`"`)) {
		return nil, errWrapping
	}
	var object map[string]json.RawMessage
	var text *string
	if json.Unmarshal(line, &object) != nil || json.Unmarshal(object[w.key], &text) != nil || text == nil || w.with != "" && object[w.with] == nil {
		return nil, errWrapping
	}
	return bytes.TrimRight([]byte(*text), "\r\n"), nil
}
