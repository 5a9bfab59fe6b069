package extproc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"example.com/sash/outgoing"
	"example.com/sash/service/internal/config"
)

// outputs are the fields with the maximum output of a request, by the end of its path. Other paths have none.
var outputs = []struct{ format, path, field string }{
	{"openai", "/chat/completions", "max_completion_tokens"},
	{"openai", "/completions", "max_tokens"},
	{"openai", "/responses", "max_output_tokens"},
	{"anthropic", "/messages", "max_tokens"},
	{"gemini", ":generateContent", "generationConfig.maxOutputTokens"},
	{"gemini", ":streamGenerateContent", "generationConfig.maxOutputTokens"},
}

var (
	errNoObject = errors.New("the body is compressed or is not one JSON object, so that its model is not known")
	errModel    = errors.New("the body has a model that is no string, twice, or in other letters, and the API may read any")
)

// read returns the model of a request, and whether it asks for a stream. An empty body has neither.
func read(body []byte) (model string, streams bool, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if start, _ := d.Token(); len(body) > 0 && (start != json.Delim('{') || !json.Valid(body)) {
		return "", false, errNoObject
	}
	for found := false; d.More(); {
		var value json.RawMessage
		name, _ := d.Token()
		_ = d.Decode(&value) // is valid
		switch name, _ := name.(string); {
		case name == "stream":
			_ = json.Unmarshal(value, &streams)
		case strings.EqualFold(name, "model"):
			if found || name != "model" || json.Unmarshal(value, &model) != nil {
				return "", false, errModel
			}
			found = true
		}
	}
	return model, streams, nil
}

// prepare returns the most tokens that a request can use, and its body with a maximum output and usage added; nil is no change.
func prepare(path string, body []byte, streams bool, tokens *config.Tokens) (outgoing.Bound, []byte, error) {
	bound, err := outgoing.Estimate(body, &outgoing.EstimateOptions{Default: tokens.DefaultMax})
	if err != nil {
		return bound, nil, err
	}
	var changed []byte
	change := func(field string, value any) {
		if err == nil {
			changed, err = with(cmp.Or(string(changed), string(body)), field, value)
		}
	}
	for _, o := range outputs {
		if o.format == tokens.Format && strings.HasSuffix(path, o.path) {
			if !bound.Named {
				change(o.field, tokens.DefaultMax)
			}
			if asks := o.field != "max_output_tokens" && o.format == "openai"; asks && tokens.AskForUsage && streams {
				change("stream_options.include_usage", true)
			}
			break
		}
	}
	return bound, changed, err
}

// with returns a JSON object, which may be empty or null, with a value at a path.
func with(object, path string, value any) ([]byte, error) {
	var of map[string]json.RawMessage
	err := json.Unmarshal([]byte(cmp.Or(object, "null")), &of)
	if of == nil {
		of = map[string]json.RawMessage{}
	}
	name, rest, nested := strings.Cut(path, ".")
	switch {
	case err != nil:
	case nested:
		of[name], err = with(string(of[name]), rest, value)
	default:
		of[name], err = json.Marshal(value)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(of)
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
