package outgoing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Usage is the tokens that a response reports.
type Usage struct {
	Input, Output         int64 // tokens of the prompt, including cached ones, and of the answer, including thoughts
	CacheRead, CacheWrite int64 // parts of Input. If a limit does not count tokens read from a cache, settle Total - CacheRead
	Found, Final          bool  // whether a count above zero was found, and whether no other count can follow
}

// Total returns Input + Output.
func (u Usage) Total() int64 { return u.Input + u.Output }

// usageObjects are the paths of the counts: in whole answers, message_start, response.completed, Groq's last event, and Gemini.
var usageObjects = []string{"usage.", "message.usage.", "response.usage.", "x_groq.usage.", "usageMetadata."}

// A format has the names of an API's counts. Input and output are sums. If the total exceeds both, the rest is
// output, since some APIs leave thoughts out. Counts in a stream are cumulative, so the largest of each is kept.
type format struct{ input, output, total, read, write string }

var formats = []format{{ // OpenAI's chat, and most others
	input: "prompt_tokens", output: "completion_tokens", total: "total_tokens",
	read: "prompt_tokens_details.cached_tokens prompt_cache_hit_tokens",
}, { // Anthropic's messages, OpenAI's responses and, in camel case, Bedrock's Converse
	input:  "input_tokens cache_read_input_tokens cache_creation_input_tokens cache_write_input_tokens",
	output: "output_tokens", total: "total_tokens",
	read: "cache_read_input_tokens input_tokens_details.cached_tokens", write: "cache_creation_input_tokens cache_write_input_tokens",
}, { // Gemini
	input: "promptTokenCount toolUsePromptTokenCount", output: "candidatesTokenCount thoughtsTokenCount", total: "totalTokenCount",
	read: "cachedContentTokenCount",
}}

// ends are the values that end a stream or come with its last counts. Nil stands for any string.
var ends = map[string][]string{
	"":                           {`DONE`}, // of [DONE]
	"type":                       {`"message_stop"`, `"response.completed"`, `"response.incomplete"`, `"response.failed"`},
	"delta.stop_reason":          nil,
	"candidates.finishReason":    nil,
	"promptFeedback.blockReason": nil,
}

// A Meter finds the usage in a response's body, which the caller writes to it in pieces of any length. The body is JSON, or
// server-sent events with JSON, from OpenAI, Anthropic, Google, Bedrock or a compatible API, but not Amazon's binary event
// stream. OpenAI's chat API reports usage in a stream only if the request sets include_usage in stream_options. A Meter keeps the
// names above the current value and its first 256 bytes. The zero Meter is ready to use. It is safe for concurrent use.
type Meter struct {
	mu     sync.Mutex // guards all
	scan   scanner
	counts map[string]int64 // by plain name
	events bool             // the body is server-sent events
	line   int              // matched bytes of "data:" in the current line, -1 in another field
	ending bool             // the current JSON has one of the values in ends
	ended  bool
}

// Write implements [io.Writer]. It returns no error.
func (m *Meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range p {
		if m.counts == nil {
			if c <= ' ' || c >= 0x80 { // a blank, or a byte order mark
				continue
			}
			m.counts, m.events = map[string]int64{}, c != '{' && c != '['
			m.begin()
		}
		switch {
		case !m.events, m.line == len("data:") && c != '\n':
			m.scan.next(c)
		case c == '\n':
			if m.scan.next(c); m.line == 0 { // a blank line ends an event
				m.begin()
			}
			m.line = 0
		case m.line >= 0 && c == "data:"[m.line]:
			m.line++
		case m.line != 0 || c != '\r':
			m.line = -1
		}
	}
	return len(p), nil
}

func (m *Meter) begin() { m.scan, m.ending = scanner{value: m.value, end: m.end}, false }

func (m *Meter) value(path, text []byte) {
	if len(path) > longest { // no known name is
		return
	}
	at := string(path)
	values, ok := ends[at]
	m.ending = m.ending || ok && (slices.Contains(values, string(text)) || values == nil && text[0] == '"')
	for _, object := range usageObjects {
		if name, ok := strings.CutPrefix(at, object); ok && len(m.counts) < 64 {
			n, _ := count(text)
			m.counts[plain(name)] = max(m.counts[plain(name)], n)
		}
	}
}

func (m *Meter) end(object bool) { m.ended = m.ended || m.ending || object && !m.events }

// Usage returns what the body has reported so far. It is final at the end of a JSON object, and in a stream
// after the last event that the API sends.
func (m *Meter) Usage() (u Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := func(names string) (n int64) {
		for _, name := range strings.Fields(names) {
			n += m.counts[plain(name)]
		}
		return n
	}
	for _, f := range formats {
		v := Usage{Input: sum(f.input), Output: sum(f.output), CacheRead: sum(f.read), CacheWrite: sum(f.write)}
		v.Output = max(v.Output, sum(f.total)-v.Input)
		if n := v.Total() - u.Total(); n > 0 || n == 0 && v.Input > u.Input { // some APIs report in two formats
			u = v
		}
	}
	u.Found = u.Total() > 0
	u.Final = u.Found && m.ended
	return u
}

// MeterBody wraps the body of a response without changing its bytes. It calls done once with the usage: when
// the body has been read to its end, has failed or is closed.
func MeterBody(body io.ReadCloser, done func(Usage)) io.ReadCloser {
	meter := new(Meter)
	return endingBody{readCloser{io.TeeReader(body, meter), body}, sync.OnceFunc(func() { done(meter.Usage()) })}
}

// The limits of a scanner: levels of arrays and objects, and bytes of a name or a value.
const deepest, longest = 128, 256

// A scanner reads JSON byte by byte. It does not validate: for invalid JSON it may report anything.
type scanner struct {
	// value is called when an array or object begins, with "[" or "{", and when any other value ends. A string
	// is in quotes. The path is the names above the value, joined by dots.
	value func(path, text []byte)
	end   func(object bool) // called when an array or object at the top ends

	open    []container
	path    []byte
	text    []byte // of the current name or value
	in      byte   // '"' in a string, 'v' in a number or a literal, 0 between them
	escaped bool   // the last byte was a backslash
	name    bool   // the next string is a name
	broken  bool
}

// A container is an array or object that has not ended.
type container struct {
	object bool
	path   int // length of the path above it
}

func (s *scanner) next(c byte) {
	switch {
	case s.broken:
	case s.in == '"':
		s.hold(c)
		if c == '"' && !s.escaped {
			s.ended()
		}
		s.escaped = c == '\\' && !s.escaped
	case strings.IndexByte(" \t\r\n,:{}[]\"", c) < 0:
		if s.in == 0 {
			s.in, s.text = 'v', s.text[:0]
		}
		s.hold(c)
	default:
		if s.in == 'v' {
			s.ended()
		}
		s.punctuation(c)
	}
}

// within consumes the bytes of a string up to the next quote or backslash, and returns their number. next handles single bytes.
func (s *scanner) within(p []byte) int {
	if s.in != '"' || s.escaped {
		return 0
	}
	n := max(bytes.IndexAny(p, `"\\`), 0)
	s.text = append(s.text, p[:min(n, longest-len(s.text))]...)
	return n
}

// hold appends to the current name or value. If that is too long, it replaces the last byte: no known name has that length.
func (s *scanner) hold(c byte) { s.text = append(s.text[:min(len(s.text), longest-1)], c) }

// ended handles a complete name or value. Question marks replace dots in names and stand for an empty name.
func (s *scanner) ended() {
	if s.in = 0; !s.name {
		s.value(s.path, s.text)
		return
	}
	name := strings.Trim(string(s.text), `"`)
	if strings.Contains(name, `\`) {
		_ = json.Unmarshal(s.text, &name) // fails for a name that was cut, which is no known one
	}
	if s.name = false; len(s.path) > 0 {
		s.path = append(s.path, '.')
	}
	s.path = append(s.path, strings.ReplaceAll(cmp.Or(name, "?"), ".", "?")...)
}

func (s *scanner) punctuation(c byte) {
	top := len(s.open) - 1
	switch c {
	case '"':
		s.in, s.text = c, append(s.text[:0], c)
	case '{', '[':
		if s.broken = len(s.open) == deepest; !s.broken {
			s.value(s.path, []byte{c})
			s.open, s.name = append(s.open, container{c == '{', len(s.path)}), c == '{'
		}
	case '}', ']':
		if s.broken = top < 0 || s.open[top].object != (c == '}'); s.broken {
			return
		}
		s.path, s.open, s.name = s.path[:s.open[top].path], s.open[:top], false
		if top == 0 {
			s.end(c == '}')
		}
	case ',':
		if top >= 0 {
			s.path, s.name = s.path[:s.open[top].path], s.open[top].object
		}
	}
}

// count returns the number of tokens in a value: a non-negative whole number of at most 2^31.
func count(text []byte) (n int64, ok bool) {
	if text[0] < '0' || text[0] > '9' || len(text) == longest { // most values are not numbers, and an error is expensive
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) {
		return 0, false
	}
	return int64(min(f, 1<<31)), true
}
