package extproc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"example.com/sash/outgoing"
	"example.com/sash/service/internal/config"
)

// outputs are the fields with the maximum output of a request, by the end of its path; the first is set. None is a path without output.
var outputs = []struct {
	format, path string
	fields       []string
}{
	{"openai", "/chat/completions", []string{"max_completion_tokens", "max_tokens"}},
	{"openai", "/completions", []string{"max_tokens"}},
	{"openai", "/responses", []string{"max_output_tokens"}},
	{"openai", "/embeddings", nil},
	{"openai", "/moderations", nil},
	{"anthropic", "/messages", []string{"max_tokens"}},
	{"anthropic", "/messages/count_tokens", nil},
	{"gemini", ":generatecontent", []string{"generationConfig.maxOutputTokens"}},
	{"gemini", ":streamgeneratecontent", []string{"generationConfig.maxOutputTokens"}},
	{"gemini", ":counttokens", nil},
	{"gemini", ":embedcontent", nil},
	{"gemini", ":batchembedcontents", nil},
}

var (
	errNoObject  = errors.New("the body is compressed or is not one JSON object, so that its model is not known")
	errElsewhere = errors.New("the body names content whose tokens its bytes do not bound, and tokens of the rule has no cost for what is elsewhere")
	errPath      = errors.New("the body sets no maximum output, and which field does is not known for this path")
	errModel     = errors.New("the body has a model that is no string, twice, or in other letters, and the API may read any")
)

// A modelName is the value of the field model, which is a string or null.
type modelName struct {
	text  string
	found bool
}

// UnmarshalJSON reads the field each time that a body has it.
func (m *modelName) UnmarshalJSON(value []byte) error {
	switch {
	case m.found, value[0] != '"' && value[0] != 'n':
		return errModel
	case bytes.IndexByte(value, '\\') >= 0:
		_ = json.Unmarshal(value, &m.text) // is a string
	case value[0] == '"':
		m.text = string(value[1 : len(value)-1])
	}
	m.found = true
	return nil
}

// read returns the model of a request, and whether it asks for a stream without usage. An empty body has neither.
func read(body []byte) (model string, unmetered bool, err error) {
	var fields struct {
		Other   json.RawMessage `json:"MODEL"` // in other letters, as it is the first of both
		Model   modelName       `json:"model"`
		Stream  bool            `json:"stream"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	err = json.Unmarshal(body, &fields)
	_, mistyped := errors.AsType[*json.UnmarshalTypeError](err)
	switch start := bytes.TrimLeft(body, " \t\r\n"); {
	case len(body) == 0:
		return "", false, nil
	case errors.Is(err, errModel) || fields.Other != nil:
		return "", false, errModel
	case err != nil && !mistyped || start[0] != '{':
		return "", false, errNoObject
	}
	return fields.Model.text, fields.Stream && !fields.Options.Usage, nil
}

// prepare returns the most tokens that a request can use, and its body with a maximum output and usage added; nil is no change.
func prepare(uri string, body []byte, unmetered bool, tokens *config.Tokens) (outgoing.Bound, []byte, error) {
	if plain, err := url.PathUnescape(uri); err == nil {
		uri = plain
	}
	uri = strings.ToLower(path.Clean(uri)) // as lenient upstreams read it
	opts, known := &outgoing.EstimateOptions{Default: tokens.DefaultMax}, false
	for _, o := range outputs {
		if known = o.format == tokens.Format && strings.HasSuffix(uri, o.path); known {
			opts.Fields = o.fields
			break
		}
	}
	if tokens.Elsewhere > 0 {
		opts.Costs = map[string]int64{"*": tokens.Elsewhere}
	}
	bound, err := outgoing.Estimate(body, opts)
	if errors.Is(err, outgoing.ErrOutside) {
		err = fmt.Errorf("%w%s", errElsewhere, strings.TrimPrefix(err.Error(), outgoing.ErrOutside.Error()))
	}
	if !known && err == nil && !bound.Named {
		err = errPath
	}
	if err != nil || opts.Fields == nil {
		return bound, nil, err
	}
	var changed []byte
	change := func(field string, value any) {
		if err == nil {
			changed, err = with(cmp.Or(string(changed), string(body)), field, value)
		}
	}
	if !bound.Named {
		change(opts.Fields[0], tokens.DefaultMax)
	}
	if tokens.Format == "openai" && opts.Fields[0] != "max_output_tokens" && tokens.AskForUsage && unmetered {
		change("stream_options.include_usage", true)
	}
	return bound, changed, err
}

// with returns a JSON object, which may be empty or null, with a value at a path.
func with(object, at string, value any) ([]byte, error) {
	var of map[string]json.RawMessage
	err := json.Unmarshal([]byte(cmp.Or(object, "null")), &of)
	if of == nil {
		of = map[string]json.RawMessage{}
	}
	name, rest, nested := strings.Cut(at, ".")
	switch {
	case err != nil:
	case nested:
		of[name], err = with(string(of[name]), rest, value)
	default:
		of[name], err = json.Marshal(value)
	}
	var out bytes.Buffer
	text := json.NewEncoder(&out)
	text.SetEscapeHTML(false) // which would make six bytes of one
	if err == nil {
		err = text.Encode(of)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// kinds are those of errors, of OpenAI and Anthropic, and of Gemini.
var kinds = map[int][2]string{
	http.StatusBadRequest:            {"invalid_request_error", "INVALID_ARGUMENT"},
	http.StatusRequestEntityTooLarge: {"request_too_large", "INVALID_ARGUMENT"},
	http.StatusTooManyRequests:       {"rate_limit_error", "RESOURCE_EXHAUSTED"},
	http.StatusServiceUnavailable:    {"api_error", "UNAVAILABLE"},
}

// problem returns an error in the form of an API, by default that of OpenAI.
func problem(format string, code int, text string) []byte {
	all := map[string]any{"error": map[string]any{"type": kinds[code][0], "message": text, "param": nil, "code": nil}}
	switch format {
	case "anthropic":
		all = map[string]any{"type": "error", "error": map[string]any{"type": kinds[code][0], "message": text}}
	case "gemini":
		all["error"] = map[string]any{"status": kinds[code][1], "message": text, "code": code}
	}
	body, _ := json.Marshal(all) // always marshals
	return body
}
