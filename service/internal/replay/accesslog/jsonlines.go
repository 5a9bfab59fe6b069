package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

var errJSON = errors.New("not a JSON object")

// An object is one line of JSON, or of key=value pairs.
type object map[string]any

func readJSON(line []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var o object
	if err := decoder.Decode(&o); err != nil || o == nil || decoder.More() {
		return nil, errJSON
	}
	return o, nil
}

// field implements others. For a list it returns the first element, because Caddy writes headers as lists.
func (o object) field(name string) string {
	v, ok := o[name]
	if !ok {
		in, below, nested := strings.Cut(name, ".")
		if !nested {
			return ""
		}
		inner, _ := o[in].(map[string]any)
		return object(inner).field(below)
	}
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}
