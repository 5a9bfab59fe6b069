package extproc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"example.com/sash/outgoing"
	"example.com/sash/service/internal/config"
)

// outputs has the fields for the maximum output, by the end of a path. The first is set if all are missing; nil means no output.
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
	errOddPath   = errors.New("the path has a space, or one of ;?#\\ in it, so that the API may take it for another one")
	errEncoded   = errors.New("the body is not plain UTF-8 by content-encoding or content-type, so that its bytes do not bound its tokens")
	errModel     = errors.New("the body has a model that is no string, twice, or in other letters, and the API may read any")
)

// each calls see for each field of a valid JSON object, with the name and the position of the value.
func each(object []byte, see func(name string, from, to int)) {
	level, name, from := 0, "", 0
	for i := 0; i < len(object); i++ {
		switch c := object[i]; {
		case c == '"':
			start := i
			for escaped := true; escaped; {
				i += 1 + bytes.IndexByte(object[i+1:], '"')
				escaped = (i-len(bytes.TrimRight(object[:i], `\`)))%2 == 1
			}
			if level == 1 && from == 0 {
				name = text(object[start : i+1])
			}
		case level == 1 && c == ':':
			from = i + 1
		case level == 1 && from > 0 && (c == ',' || c == '}'):
			see(name, from, i)
			from = 0
		case c == '{', c == '[':
			level++
		case c == '}', c == ']':
			level--
		}
	}
}

// plain returns an error unless the API reads the bytes of a body as they are.
func plain(header http.Header) error {
	for _, coding := range header["Content-Encoding"] {
		if !strings.EqualFold(coding, "identity") {
			return errEncoded
		}
	}
	for _, value := range header["Content-Type"] {
		if _, params, err := mime.ParseMediaType(value); err != nil || !strings.EqualFold(cmp.Or(params["charset"], "utf-8"), "utf-8") {
			return errEncoded
		}
	}
	return nil
}

// text returns the value of a JSON string.
func text(value []byte) (plain string) {
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	_ = json.Unmarshal(value, &plain) // is a string
	return plain
}

// read returns the model of a request, and whether it requests a stream. For an empty body both are zero.
func read(body []byte) (model string, stream bool, err error) {
	switch start := bytes.TrimLeft(body, " \t\r\n"); {
	case len(body) == 0:
		return "", false, nil
	case !json.Valid(body) || start[0] != '{':
		return "", false, errNoObject
	}
	found := false
	each(body, func(name string, from, to int) {
		switch value := bytes.TrimSpace(body[from:to]); strings.ToLower(name) {
		case "model":
			if name != "model" || found || value[0] != '"' && value[0] != 'n' {
				err = errModel
			} else if found = true; value[0] == '"' {
				model = text(value)
			}
		case "stream":
			stream = string(value) == "true"
		}
	})
	return model, stream, err
}

// prepare returns the most tokens that a request can use, and a body with a maximum output and usage added; nil means no change.
func prepare(uri string, body []byte, stream bool, tokens *config.Tokens) (outgoing.Bound, []byte, error) {
	if plain, err := url.PathUnescape(uri); err == nil {
		uri = plain
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || strings.ContainsRune(";?#\\", r) }) {
		return outgoing.Bound{}, nil, errOddPath
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
	changed := body
	if !bound.Named {
		changed, err = with(changed, opts.Fields[0], strconv.FormatInt(tokens.DefaultMax, 10))
	}
	if err == nil && tokens.Format == "openai" && opts.Fields[0] != "max_output_tokens" && tokens.AskForUsage && stream {
		changed, err = with(changed, "stream_options.include_usage", "true")
	}
	if bytes.Equal(changed, body) {
		changed = nil
	}
	return bound, changed, err
}

// with sets the value at a path of a JSON object, which may be null or empty. The rest stays as the client wrote it.
func with(object []byte, at, value string) ([]byte, error) {
	name, rest, nested := strings.Cut(at, ".")
	switch plain := bytes.TrimSpace(object); {
	case len(plain) == 0, string(plain) == "null":
		object = []byte("{}")
	case plain[0] != '{':
		return nil, fmt.Errorf("the body has no object above %s", name)
	}
	start, end, comma := 0, 0, ""
	each(object, func(n string, from, to int) {
		if comma = ","; n == name {
			start, end = from, to
		}
	})
	if nested {
		inner, err := with(object[start:end], rest, value)
		if err != nil {
			return nil, err
		}
		value = string(inner)
	}
	if bytes.Equal(bytes.TrimSpace(object[start:end]), []byte(value)) {
		return object, nil
	}
	if start == 0 { // a new field, which becomes the last one
		start = bytes.LastIndexByte(object, '}')
		end, value = start, comma+strconv.Quote(name)+":"+value
	}
	return slices.Concat(object[:start], []byte(value), object[end:]), nil
}

// kinds are the names of errors in the APIs of OpenAI and Anthropic, and of Gemini.
var kinds = map[int][2]string{
	http.StatusBadRequest:            {"invalid_request_error", "INVALID_ARGUMENT"},
	http.StatusRequestEntityTooLarge: {"request_too_large", "INVALID_ARGUMENT"},
	http.StatusTooManyRequests:       {"rate_limit_error", "RESOURCE_EXHAUSTED"},
	http.StatusServiceUnavailable:    {"api_error", "UNAVAILABLE"},
}

// problem returns an error in the format of an API, by default that of OpenAI.
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
