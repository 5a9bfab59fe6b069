package outgoing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// The errors of Estimate, for errors.Is. Their texts name the field.
var (
	ErrUnreadable = errors.New("outgoing: the body cannot be read as a JSON object in UTF-8 (is it compressed?), or a field is not a number")
	ErrTwice      = errors.New("outgoing: the body has the same field twice, and the API may read either")
	ErrOutside    = errors.New("outgoing: the body's bytes do not bound the tokens of this content, and EstimateOptions.Costs has no cost for it")
	ErrUnbounded  = errors.New("outgoing: the body sets no maximum output, and EstimateOptions.Default is zero")
)

// EstimateOptions are the settings of Estimate. The zero value rejects every request whose body does not bound its tokens.
type EstimateOptions struct {
	// Default is the maximum output of a request that sets none. The API must enforce it. If it is zero, the error is ErrUnbounded.
	Default int64
	// Fields are the fields by which the API limits output, such as "max_tokens" or "generationConfig.maxOutputTokens". The
	// Default applies to a request without any of them. Nil means all known fields, which suits APIs that reject unknown ones.
	Fields []string
	// Costs are the tokens of one use of content whose bytes do not bound them, by the kind that the error names: "image_url",
	// "file_id", "previous_response_id", or the type of a tool. "*" is any other kind. Bytes in the body count in addition.
	Costs map[string]int64
	// Overhead is the tokens that the API adds to each prompt, such as instructions for tools.
	Overhead int64
	// Factor is the tokens per byte. Zero is 1, an upper bound. A smaller one, such as 0.3 for English, can make estimates too low.
	Factor float64
}

// A Bound is the most tokens that a request can use.
type Bound struct {
	Input, Output int64
	Named         bool // the request sets its maximum output; otherwise EstimateOptions.Default was used
}

// Total returns Input + Output.
func (b Bound) Total() int64 { return b.Input + b.Output }

type field struct{ means, name string }

// The meanings of the fields that Estimate reads.
const (
	most     = "maximum output of one answer"
	times    = "number of answers"
	thoughts = "output in addition" // Gemini's maxOutputTokens does not always bound thoughts
	outside  = "content that is stored elsewhere or is not text"
	data     = "an object with names that callers choose"
)

// bodyFields maps plain paths to fields. An asterisk stands for any path above.
var bodyFields = func() map[string]field {
	all := map[string]field{}
	for means, names := range map[string]string{
		most:     "max_completion_tokens max_tokens max_output_tokens generationConfig.maxOutputTokens inferenceConfig.maxTokens",
		times:    "n best_of generationConfig.candidateCount",
		thoughts: "generationConfig.thinkingConfig.thinkingBudget",
		outside: `previous_response_id conversation prompt.id cachedContent container mcp_servers plugins web_search_options
			search_parameters data_sources messages.audio messages.images images *.image_url *.video_url *.audio_url
			*.input_audio *.file_id *.file_url *.file_data *.inline_data *.s3_location *.source.bytes tools.google_search
			tools.google_search_retrieval tools.google_maps tools.enterprise_web_search tools.code_execution
			tools.url_context tools.file_search tools.retrieval tools.computer_use toolConfig.tools.systemTool`,
		data: "*.properties *.$defs *.definitions *.default *.examples *.input_examples *.args *.input *.response metadata labels",
	} {
		for _, name := range strings.Fields(names) {
			all[plain(name)] = field{means, name}
		}
	}
	return all
}()

// plain returns a path in the form in which the most lenient API compares it: protocol buffers read
// max_output_tokens as maxOutputTokens, and Go servers read MAX_TOKENS as max_tokens, by Unicode case folding.
func plain(path string) string {
	return strings.ToLower(strings.ToUpper(strings.ReplaceAll(path, "_", "")))
}

// Estimate returns the most tokens that a request with this body can use. The body is JSON for OpenAI, Anthropic, Google or Bedrock. Input
// is its number of bytes. Output is the largest maximum that a field sets, times the number of answers. A nil opts is the zero value.
//
// An estimate is too low if the tokenizer first lengthens the text (NFKC), if the API ignores the field that sets the maximum output
// (Fields) or adds more to prompts than the Overhead (tool use adds hundreds of tokens), or if Costs or the Factor is a guess.
func Estimate(body []byte, opts *EstimateOptions) (Bound, error) {
	e := estimate{EstimateOptions: *cmp.Or(opts, &EstimateOptions{}), seed: maphash.MakeSeed(), seen: map[uint64]bool{}, data: deepest, answers: 1}
	if !utf8.Valid(body) || !json.Valid(body) || bytes.TrimSpace(body)[0] != '{' {
		return Bound{}, ErrUnreadable
	}
	e.scan.value, e.scan.end = e.value, func(bool) {}
	for i := 0; i < len(body) && e.err == nil; i++ {
		i += e.scan.within(body[i:])
		e.scan.next(body[i])
	}
	if e.scan.broken {
		e.fail(ErrUnreadable, "too many levels")
	}
	if !e.named {
		if e.most = max(e.most, e.Default); e.Default <= 0 {
			e.fail(ErrUnbounded, "max_tokens")
		}
	}
	whole := func(f float64) int64 { return int64(min(math.Ceil(f), 1<<52)) }
	return Bound{
		Input:  whole(float64(len(body))*cmp.Or(e.Factor, 1) + float64(e.Overhead+e.cost)),
		Output: whole(float64(e.most+e.thoughts) * float64(e.answers) * float64(max(e.prompts, 1))),
		Named:  e.named,
	}, e.err
}

// EstimateRequest returns the Estimate of a request's body, which a [Route] must not read. It reads a copy from GetBody, which
// http.NewRequest sets for a strings.Reader, a bytes.Reader and a bytes.Buffer. Without GetBody it returns ErrUnreadable.
func EstimateRequest(req *http.Request, opts *EstimateOptions) (Bound, error) {
	if req.GetBody == nil {
		return Bound{}, fmt.Errorf("%w: the request has no GetBody", ErrUnreadable)
	}
	body, err := req.GetBody()
	if err != nil {
		return Bound{}, err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return Bound{}, err
	}
	return Estimate(text, opts)
}

// An estimate is the state of one call of Estimate.
type estimate struct {
	EstimateOptions
	scan                   scanner
	above                  []value         // the values that contain the current one
	data                   int             // the level of the object whose names callers choose
	seed                   maphash.Seed    // random, so that nobody can choose names with the same hash
	seen                   map[uint64]bool // hashes of plain paths
	named                  bool
	most, thoughts         int64
	answers, prompts, cost int64 // prompts counts those in a list, each of which has its own answers
	err                    error // the first
}

func (e *estimate) fail(err error, where string) {
	e.err = cmp.Or(e.err, fmt.Errorf("%w: %s", err, where))
}

// A value has a plain path, and may be in a list.
type value struct {
	key    string
	inList bool
}

// value takes time in proportion to the value and its name alone, because clients choose how deeply it is nested.
func (e *estimate) value(path, text []byte) {
	level := len(e.scan.open)
	if level > e.data {
		return
	}
	if e.data = deepest; len(path) > longest {
		e.fail(ErrUnreadable, "names that are too long")
		return
	}
	at, v := string(path), value{}
	if level > 0 {
		in := e.scan.open[level-1]
		v = value{e.above[level-1].key + plain(at[in.path:]), e.above[level-1].inList || !in.object}
	}
	e.above = append(e.above[:level], v)
	key, inList := v.key, v.inList
	dot := strings.LastIndexByte(key, '.')
	last, lastTwo := key[dot+1:], key[strings.LastIndexByte(key[:max(dot, 0)], '.')+1:]
	if begins := text[0] == '{' || text[0] == '['; begins && (bodyFields[last].means == data || dot > 0 && bodyFields["*."+last].means == data) {
		e.data = level
	}
	if !inList { // list elements share a path, and a repeated list is found by its own name
		hash := maphash.String(e.seed, key)
		if e.seen[hash] {
			e.fail(ErrTwice, at)
		}
		e.seen[hash] = true
	}
	f := cmp.Or(bodyFields[key], bodyFields["*."+last], bodyFields["*."+lastTwo])
	word := strings.Trim(string(text), `"`)
	n, ok := count(text)
	switch {
	case string(text) == "null":
	case f.means == outside && text[0] != '[': // each element of a list counts
		e.outside(at, f.name[strings.LastIndexAny(f.name, "*.")+1:])
	case key == "tools.type" && word != "function" && word != "custom", key == "input.type" && word == "item_reference":
		e.outside(at, word)
	case strings.HasSuffix(key, ".source.type") && slices.Contains([]string{"base64", "url", "file"}, word):
		e.outside(at, "source")
	case key == "prompt" && len(e.scan.open) == 2 && (text[0] == '"' || text[0] == '['):
		e.prompts++
	case inList:
	case f.means == thoughts:
		e.thoughts = max(e.thoughts, n) // with -1 the model decides
	case !ok && (f.means == most || f.means == times):
		e.fail(ErrUnreadable, at)
	case f.means == times:
		e.answers = max(e.answers, n)
	case f.means == most:
		e.most = max(e.most, n)
		e.named = e.named || n > 0 && (at == f.name && e.Fields == nil || slices.Contains(e.Fields, at))
	}
}

func (e *estimate) outside(at, kind string) {
	cost, ok := e.Costs[kind]
	if !ok {
		cost, ok = e.Costs["*"]
	}
	if e.cost += cost; !ok {
		e.fail(ErrOutside, fmt.Sprintf("%s, kind %q", at, kind))
	}
}
