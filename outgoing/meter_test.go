package outgoing_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"example.com/sash/outgoing"
)

// sse returns server-sent events with the given data.
func sse(data ...string) (body string) {
	for _, d := range data {
		body += "data: " + d + "\n\n"
	}
	return body
}

// named returns server-sent events that have a name, which is the type of their data.
func named(data ...string) (body string) {
	for _, d := range data {
		_, kind, _ := strings.Cut(d, `"type":"`)
		kind, _, _ = strings.Cut(kind, `"`)
		body += "event: " + kind + "\n" + sse(d)
	}
	return body
}

var chat = []string{
	`{"id":"c-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"A \"usage\": {"}}],"usage":null}`,
	`{"id":"c-1","choices":[{"index":0,"delta":{"content":"\"completion_tokens\": 1}"},"finish_reason":"stop"}],"usage":null}`,
	`{"id":"c-1","choices":[],"usage":{"prompt_tokens":31,"completion_tokens":17,"total_tokens":48,` +
		`"prompt_tokens_details":{"cached_tokens":16},"completion_tokens_details":{"reasoning_tokens":9}}}`,
	`[DONE]`,
}

var messages = []string{
	`{"type":"message_start","message":{"id":"m","type":"message","content":[],"stop_reason":null,"usage":{"input_tokens":25,` +
		`"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"cache_creation":{"ephemeral_5m_input_tokens":100},"output_tokens":1}}}`,
	`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"type\":\"message_stop\"}"}}`,
	`{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":8}}`,
	`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":25,"output_tokens":15}}`,
	`{"type":"message_stop"}`,
}

var responses = []string{
	`{"type":"response.created","response":{"id":"r","status":"in_progress","usage":null}}`,
	`{"type":"response.output_text.delta","delta":"usage"}`,
	`{"type":"response.completed","response":{"id":"r","output":[{"content":[{"text":"` + strings.Repeat("long ", 100) + `"}]}],"usage":{` +
		`"input_tokens":36,"input_tokens_details":{"cached_tokens":4},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":123}}}`,
}

var gemini = []string{
	`{"candidates":[{"content":{"parts":[{"text":"One"}]},"index":0}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":1,"totalTokenCount":40,"thoughtsTokenCount":32}}`,
	`{"candidates":[{"content":{"parts":[{"text":" two"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":5,` +
		`"totalTokenCount":54,"thoughtsTokenCount":40,"toolUsePromptTokenCount":2,"cachedContentTokenCount":3}}`,
}

func final(input, output, read, written int64) outgoing.Usage {
	return outgoing.Usage{Input: input, Output: output, CacheRead: read, CacheWrite: written, Found: true, Final: true}
}

// samples are bodies as vendors document them, with the usage that they report.
var samples = []struct {
	name, body string
	want       outgoing.Usage
}{
	{"chat, streamed", sse(chat...), final(31, 17, 16, 0)},
	{"chat, with CRLF and comments", ": hello\r\n\r\n" + strings.ReplaceAll(sse(chat...), "\n", "\r\n"), final(31, 17, 16, 0)},
	{"chat, without blanks", strings.ReplaceAll(sse(chat...), "data: ", "data:"), final(31, 17, 16, 0)},
	{"chat, with a byte order mark", "\ufeff" + sse(chat[2:]...), final(31, 17, 16, 0)},
	{"chat, whose last line has no end", strings.TrimRight(sse(chat...), "\n"), final(31, 17, 16, 0)},
	{"chat, with an event of several lines", "data: {\"usage\":\ndata: {\"prompt_tokens\":\ndata: 3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n", final(3, 4, 0, 0)},
	{"chat, without include_usage", sse(`{"choices":[{"delta":{"content":"a"}}]}`, `[DONE]`), outgoing.Usage{}},
	{"chat, with counts in each event", sse(`{"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`,
		`{"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, `[DONE]`), final(5, 2, 0, 0)},
	{"chat, cut before the end", sse(`{"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, `{"choices":[{}],"us`),
		outgoing.Usage{Input: 5, Output: 1, Found: true}},
	{"chat, as JSON", `{"id":"c","choices":[{"message":{"content":"{\"usage\":{\"prompt_tokens\":999}}"}}],` +
		`"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`, final(19, 10, 0, 0)},
	{"chat, with a quote and a backslash", `{"choices":[{"message":{"content":"5\" of \\"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, final(1, 2, 0, 0)},
	{"chat, as indented JSON", "\n{\n  \"usage\": {\n    \"prompt_tokens\": 19,\n    \"completion_tokens\": 10\n  }\n}\n", final(19, 10, 0, 0)},
	{"chat, JSON that is cut", `{"usage":{"prompt_tokens":19,"completion_tokens":10}`, outgoing.Usage{Input: 19, Output: 10, Found: true}},
	{"chat, whose thoughts are in the total alone", `{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":90}}`, final(10, 80, 0, 0)},
	{"chat, of a proxy that also has Anthropic's caches",
		`{"usage":{"prompt_tokens":100,"completion_tokens":5,"cache_read_input_tokens":90,"prompt_tokens_details":{"cached_tokens":90}}}`, final(100, 5, 90, 0)},
	{"chat, in two formats", `{"usage":{"prompt_tokens":100,"completion_tokens":5,"input_tokens":0,"output_tokens":0}}`, final(100, 5, 0, 0)},
	{"chat of DeepSeek", `{"usage":{"prompt_tokens":100,"completion_tokens":5,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}}`, final(100, 5, 64, 0)},
	{"chat of Groq", sse(`{"choices":[{}],"x_groq":{"id":"q","usage":{"prompt_tokens":2,"completion_tokens":3}}}`, `[DONE]`), final(2, 3, 0, 0)},
	{"embeddings", `{"data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, final(8, 0, 0, 0)},
	{"messages, streamed", named(messages...), final(2125, 15, 2000, 100)},
	{"messages, cut before the last counts", named(messages[:5]...), outgoing.Usage{Input: 2125, Output: 8, CacheRead: 2000, CacheWrite: 100, Found: true}},
	{"messages, cut before message_stop", named(messages[:6]...), final(2125, 15, 2000, 100)},
	{"messages, overloaded", named(messages[0], `{"type":"error","error":{"type":"overloaded_error"}}`),
		outgoing.Usage{Input: 2125, Output: 1, CacheRead: 2000, CacheWrite: 100, Found: true}},
	{"messages, as JSON", `{"type":"message","content":[{"type":"tool_use","input":{"usage":{"output_tokens":1},"output_tokens":7000}}],` +
		`"stop_reason":"tool_use","usage":{"input_tokens":9,"output_tokens":4}}`, final(9, 4, 0, 0)},
	{"an event that is cut, and others", sse(`{"type":"message_stop"`, messages[4], `{"candidates":[{"finishReason":"STOP"}]`),
		outgoing.Usage{Output: 8, Found: true}},
	{"an event that is cut, with CRLF", "data: {\"a\":[1,\r\n\r\n" + strings.ReplaceAll(sse(chat[2:]...), "\n", "\r\n"), final(31, 17, 16, 0)},
	{"other fields", "id: 123 {\"usage\":{\"prompt_tokens\":900}}\n: data: {\"usage\":{\"prompt_tokens\":900}}\ndatum: 9\n" + sse(chat...), final(31, 17, 16, 0)},
	{"responses, streamed", named(responses...), final(36, 87, 4, 0)},
	{"responses, cut", named(responses[:2]...), outgoing.Usage{}},
	{"responses, incomplete", named(`{"type":"response.incomplete","response":{"usage":{"input_tokens":1,"output_tokens":2}}}`), final(1, 2, 0, 0)},
	{"Gemini, streamed", sse(gemini...), final(9, 45, 3, 0)},
	{"Gemini, cut", sse(gemini[0]), outgoing.Usage{Input: 7, Output: 33, Found: true}},
	{"Gemini, as an array", "[" + strings.Join(gemini, ",\r\n") + "]", final(9, 45, 3, 0)},
	{"Gemini, an array that is cut", "[" + gemini[0] + "\n,", outgoing.Usage{Input: 7, Output: 33, Found: true}},
	{"Gemini, as JSON", gemini[1], final(9, 45, 3, 0)},
	{"Gemini, blocked", sse(`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":8,"totalTokenCount":8}}`), final(8, 0, 0, 0)},
	{"Converse", `{"output":{},"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":4,"totalTokens":7,"cacheReadInputTokens":5,"cacheWriteInputTokens":6}}`, final(14, 4, 5, 6)},
	{"names with escapes", `{"us\u0061ge":{"prompt\u005ftokens":3,"completion_tokens":4}}`, final(3, 4, 0, 0)},
	{"counts that are none", `{"usage":{"prompt_tokens":"3","completion_tokens":-4,"input_tokens":1.5,"output_tokens":NaN,"total_tokens":"3"}}`, outgoing.Usage{}},
	{"a name with a dot", `{"usage.prompt_tokens":3,"usage":{"":{"prompt_tokens":4}}}`, outgoing.Usage{}},
	{"brackets that do not match", `{"a":[1},"usage":{"prompt_tokens":3}}`, outgoing.Usage{}},
	{"an error", `{"error":{"message":"no","usage":{"prompt_tokens":1}}}`, outgoing.Usage{}},
	{"no JSON", "\x1f\x8b\x08\x00data: {\x00", outgoing.Usage{}},
	{"nothing", "", outgoing.Usage{}},
}

func TestUsageOfEachFormatAtEveryBoundary(t *testing.T) {
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			for cut := range len(s.body) + 1 {
				var m outgoing.Meter
				_, _ = io.WriteString(&m, s.body[:cut])
				before := m.Usage()
				_, _ = io.WriteString(&m, s.body[cut:])
				if got := m.Usage(); got != s.want {
					t.Fatalf("cut at %d: %+v, not %+v", cut, got, s.want)
				}
				if before.Total() > s.want.Total() || before.Final && before.Total() < s.want.Total() {
					t.Fatalf("after %d bytes: %+v, at the end %+v", cut, before, s.want)
				}
			}
		})
	}
}

// The body reads as it is, however it comes, and its usage is reported once.
func TestBodyChangesNothing(t *testing.T) {
	for _, s := range samples {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
		} {
			var reports []outgoing.Usage
			body := outgoing.MeterBody(io.NopCloser(reader(strings.NewReader(s.body))), func(u outgoing.Usage) { reports = append(reports, u) })
			got, err := io.ReadAll(body)
			if err != nil || string(got) != s.body {
				t.Errorf("%s, %s: read %q, %v", s.name, how, got, err)
			}
			_, _ = body.Read(make([]byte, 1))
			_, _ = body.Close(), body.Close()
			if len(reports) != 1 || reports[0] != s.want {
				t.Errorf("%s, %s: reported %+v, not once %+v", s.name, how, reports, s.want)
			}
		}
	}
}

func TestBodyThatFailsOrIsLeft(t *testing.T) {
	broken, all := errors.New("broken"), named(messages...)
	for name, c := range map[string]struct {
		body  string
		read  int
		err   error
		final bool
	}{
		"failed":                    {named(messages[:2]...), 1 << 20, broken, false},
		"left":                      {all, 300, nil, false},
		"left after its last event": {all + "event: ping\n", len(all), nil, true},
	} {
		var reports []outgoing.Usage
		source := io.NopCloser(io.MultiReader(strings.NewReader(c.body), iotest.ErrReader(broken)))
		body := outgoing.MeterBody(source, func(u outgoing.Usage) { reports = append(reports, u) })
		_, err := io.ReadAtLeast(body, make([]byte, c.read), c.read)
		if _ = body.Close(); !errors.Is(err, c.err) || len(reports) != 1 || !reports[0].Found || reports[0].Final != c.final {
			t.Errorf("a body that %s: %v, reported %+v", name, err, reports)
		}
	}
}

// A client may close a body that it reads.
func TestBodyIsClosedWhileItIsRead(t *testing.T) {
	var calls sync.WaitGroup
	calls.Add(1) // a second Done would panic
	body := outgoing.MeterBody(io.NopCloser(iotest.OneByteReader(strings.NewReader(sse(chat...)))), func(outgoing.Usage) { calls.Done() })
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(io.Discard, body) })
	both.Go(func() { _ = body.Close() })
	both.Wait()
	calls.Wait()
}

// A response of any length takes the same memory.
func TestMeterHoldsNoBody(t *testing.T) {
	text := func(int) string { return strings.Repeat(`long\"`, 128) }
	for begin, piece := range map[string]func(i int) string{
		`{"choices":[{"message":{"content":"`: text, `{"`: text, `{"a":`: text, "data: ": text,
		`{"a":[`:     func(int) string { return strings.Repeat("[", 1<<10) },
		`{"usage":{`: func(i int) string { return fmt.Sprintf(`"%0200d":%d,`, i, i) },
	} {
		var m outgoing.Meter
		_, _ = io.WriteString(&m, begin)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 2000 {
			_, _ = io.WriteString(&m, piece(i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > 64<<10 {
			t.Errorf("%d bytes are held of a body that begins with %s", n, begin)
		}
		_, _ = io.WriteString(&m, `"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
		if got := m.Usage(); strings.Contains(begin, "content") && got != final(1, 2, 0, 0) {
			t.Errorf("after the text: %+v", got)
		}
	}
}

func FuzzMeter(f *testing.F) {
	for i, s := range samples {
		f.Add([]byte(s.body), uint64(i))
	}
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		var whole, pieces outgoing.Meter
		_, _ = whole.Write(body)
		random := rand.New(rand.NewPCG(seed, 0))
		last := outgoing.Usage{}
		for rest := body; len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 7))
			_, _ = pieces.Write(rest[:n])
			rest = rest[n:]
			u := pieces.Usage()
			if u.Total() < last.Total() || last.Found && !u.Found || last.Final && !u.Final || u.Final && !u.Found || u.Input < 0 || u.Output < 0 {
				t.Fatalf("%+v after %+v", u, last)
			}
			last = u
		}
		if whole.Usage() != pieces.Usage() {
			t.Fatalf("%+v as a whole, %+v in pieces", whole.Usage(), pieces.Usage())
		}
	})
}

func ExampleMeter() {
	var m outgoing.Meter
	fmt.Fprint(&m, "data: {\"usage\":{\"prompt_tokens\":12,\"compl")
	fmt.Fprint(&m, "etion_tokens\":30}}\n\ndata: [DONE]\n\n")
	u := m.Usage()
	fmt.Println(u.Total(), u.Final)
	// Output: 42 true
}
