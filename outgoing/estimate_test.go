package outgoing_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"example.com/sash/outgoing"
)

// Of every body the estimate is the most output times the answers, and a token for each byte.
func TestEstimateOfOutput(t *testing.T) {
	for _, c := range []struct {
		name, body string
		output     int64
	}{
		{"chat", `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":500}`, 500},
		{"chat of old", `{"messages":[],"max_tokens":200}`, 200},
		{"responses", `{"input":"hi","max_output_tokens":300}`, 300},
		{"messages", `{"max_tokens":1024,"messages":[{"role":"user","content":[{"type":"text","text":"max_tokens: 9000"}]}]}`, 1024},
		{"Gemini", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":256,"candidateCount":3}}`, 768},
		{"Gemini, thinking", `{"generationConfig":{"maxOutputTokens":256,"candidateCount":2,"thinkingConfig":{"thinkingBudget":1000}}}`, 2512},
		{"Gemini, which thinks as long as it likes", `{"generationConfig":{"maxOutputTokens":256,"thinkingConfig":{"thinkingBudget":-1}}}`, 256},
		{"Converse", `{"messages":[],"inferenceConfig":{"maxTokens":64}}`, 64},
		{"the largest, which comes first", `{"max_completion_tokens":738,"max_tokens":1}`, 738},
		{"the largest, which comes last", `{"max_tokens":1,"max_completion_tokens":738}`, 738},
		{"the largest of another API", `{"max_tokens":1,"generationConfig":{"maxOutputTokens":5000},"max_output_tokens":2}`, 5000},
		{"answers", `{"max_tokens":100,"n":4}`, 400},
		{"answers of which the best is returned", `{"prompt":"a","max_tokens":100,"n":2,"best_of":5}`, 500},
		{"a list of prompts", `{"prompt":["a","b","c"],"max_tokens":100,"n":2}`, 600},
		{"a list of prompts in tokens", `{"prompt":[[1,2],[3]],"max_tokens":100}`, 200},
		{"a prompt in tokens", `{"prompt":[1,2,3],"max_tokens":100}`, 100},
		{"names with escapes", `{"max_tokens":1,"max\u005fcompletion\u005ftokens":900}`, 900},
		{"other spellings", `{"max_tokens":1,"MAX_COMPLETION_TOKENS":800,"generation_config":{"max_output_tokens":900}}`, 900},
		{"letters that fold to ASCII", `{"max_completion_tokens":1,"max_toKenſ":900}`, 900},
		{"an exponent", `{"max_tokens":1e3}`, 1000},
		{"null beside a number", `{"max_completion_tokens":null,"max_tokens":7,"n":null}`, 7},
		{"no answers", `{"max_tokens":7,"n":0}`, 7},
		{"a number that is too large for any model", `{"max_tokens":99999999999999999999}`, 1 << 31},
		{"numbers whose product is too large", `{"max_tokens":99999999999,"n":99999999999}`, 1 << 52},
		{"names of arguments", `{"max_tokens":7,"tools":[{"type":"function","function":{"parameters":{"properties":{"max_tokens":{"type":"object"},"n":{}}}}}]}`, 7},
		{"a field in a list", `{"max_tokens":7,"messages":[{"max_tokens":100}]}`, 7},
	} {
		got, err := outgoing.Estimate([]byte(c.body), nil)
		if want := (outgoing.Bound{Input: int64(len(c.body)), Output: c.output, Named: true}); got != want || err != nil {
			t.Errorf("%s: %+v, %v; not %+v", c.name, got, err, want)
		}
	}
}

func TestEstimateWithoutAMost(t *testing.T) {
	vllm := []string{"max_tokens", "max_completion_tokens"}
	for _, c := range []struct {
		name, body string
		fields     []string
		output     int64
		named      bool
	}{
		{"none", `{"messages":[]}`, nil, 4096, false},
		{"null", `{"max_tokens":null}`, nil, 4096, false},
		{"zero", `{"max_tokens":0}`, nil, 4096, false},
		{"answers", `{"n":3}`, nil, 3 * 4096, false},
		{"a spelling that the API may not know", `{"MAX_TOKENS":1}`, nil, 4096, false},
		{"the same above the default", `{"MAX_TOKENS":9000}`, nil, 9000, false},
		{"a path that looks like one", `{"generationConfig.maxOutputTokens":1,"":{"max_tokens":1}}`, nil, 4096, false},
		{"in a list", `{"generationConfig":[{"maxOutputTokens":1}]}`, nil, 4096, false},
		{"a field that the API does not heed", `{"max_output_tokens":1}`, vllm, 4096, false},
		{"one beside one that it heeds", `{"max_output_tokens":5000,"max_tokens":1}`, vllm, 5000, true},
		{"a field that Estimate knows by another spelling", `{"generation_config":{"max_output_tokens":5}}`, []string{"generation_config.max_output_tokens"}, 5, true},
	} {
		opts := &outgoing.EstimateOptions{Default: 4096, Fields: c.fields}
		if got, err := outgoing.Estimate([]byte(c.body), opts); err != nil || got.Output != c.output || got.Named != c.named {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		opts.Default = 0
		if got, err := outgoing.Estimate([]byte(c.body), opts); errors.Is(err, outgoing.ErrUnbounded) == c.named || got.Named != c.named {
			t.Errorf("%s, without a default: %+v, %v", c.name, got, err)
		}
	}
}

func TestEstimateRefuses(t *testing.T) {
	for _, c := range []struct {
		name, body  string
		err         error
		field, kind string
	}{
		{"nothing", "", outgoing.ErrUnreadable, "", ""},
		{"blanks", " \n", outgoing.ErrUnreadable, "", ""},
		{"gzip", "\x1f\x8b\x08\x00\x00", outgoing.ErrUnreadable, "", ""},
		{"a form", "--x\r\nContent-Disposition: form-data; name=\"max_tokens\"\r\n\r\n5\r\n--x--", outgoing.ErrUnreadable, "", ""},
		{"an array", `[{"max_tokens":5}]`, outgoing.ErrUnreadable, "", ""},
		{"JSON that is cut", `{"max_tokens":5`, outgoing.ErrUnreadable, "", ""},
		{"two objects", `{"max_tokens":5}{"max_tokens":500}`, outgoing.ErrUnreadable, "", ""},
		{"bytes that are not UTF-8, each of which can become three", "{\"max_tokens\":5,\"input\":\"\xff\xff\"}", outgoing.ErrUnreadable, "", ""},
		{"too many levels", `{"max_tokens":5,"input":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}", outgoing.ErrUnreadable, "", ""},
		{"a negative number", `{"max_tokens":-1}`, outgoing.ErrUnreadable, "max_tokens", ""},
		{"a number in a string", `{"max_tokens":5,"n":"3"}`, outgoing.ErrUnreadable, "n", ""},
		{"half a token", `{"generationConfig":{"maxOutputTokens":0.5}}`, outgoing.ErrUnreadable, "generationConfig.maxOutputTokens", ""},
		{"an object", `{"max_tokens":{"max_tokens":5}}`, outgoing.ErrUnreadable, "max_tokens", ""},
		{"twice", `{"max_tokens":5,"max_tokens":5}`, outgoing.ErrTwice, "max_tokens", ""},
		{"twice, once null", `{"max_tokens":5,"stream":true,"max_tokens":null}`, outgoing.ErrTwice, "max_tokens", ""},
		{"twice with an escape", `{"max_tokens":5,"max_toke\u006es":500}`, outgoing.ErrTwice, "max_tokens", ""},
		{"twice in two spellings", `{"max_tokens":5,"Max_Tokens":6}`, outgoing.ErrTwice, "Max_Tokens", ""},
		{"an object twice", `{"generationConfig":{"maxOutputTokens":5},"generationConfig":{}}`, outgoing.ErrTwice, "generationConfig", ""},
		{"twice in an object", `{"generationConfig":{"maxOutputTokens":5,"max_output_tokens":6}}`, outgoing.ErrTwice, "generationConfig.max_output_tokens", ""},
		{"the earlier response", `{"previous_response_id":"r"}`, outgoing.ErrOutside, "previous_response_id", "previous_response_id"},
		{"a conversation", `{"conversation":{"id":"c"}}`, outgoing.ErrOutside, "conversation", "conversation"},
		{"a stored prompt", `{"prompt":{"id":"p","variables":{}}}`, outgoing.ErrOutside, "prompt.id", "id"},
		{"an earlier item", `{"input":[{"type":"item_reference","id":"i"}]}`, outgoing.ErrOutside, "input.type", "item_reference"},
		{"an image of a chat", `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x"}}]}]}`, outgoing.ErrOutside, "messages.content.image_url", "image_url"},
		{"an image of a response", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:x"}]}]}`, outgoing.ErrOutside, "input.content.image_url", "image_url"},
		{"a file", `{"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`, outgoing.ErrOutside, "input.content.file_id", "file_id"},
		{"audio", `{"messages":[{"content":[{"input_audio":{"data":""}}]}]}`, outgoing.ErrOutside, "messages.content.input_audio", "input_audio"},
		{"earlier audio", `{"messages":[{"role":"assistant","audio":{"id":"a"}}]}`, outgoing.ErrOutside, "messages.audio", "audio"},
		{"an image of a message", `{"messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}`, outgoing.ErrOutside, "messages.content.source.type", "source"},
		{"an image in the result of a tool", `{"messages":[{"content":[{"type":"tool_result","content":[{"source":{"data":"x","type":"base64"}}]}]}]}`,
			outgoing.ErrOutside, "messages.content.content.source.type", "source"},
		{"Gemini's data", `{"contents":[{"parts":[{"inlineData":{"data":""}}]}]}`, outgoing.ErrOutside, "contents.parts.inlineData", "inline_data"},
		{"Gemini's files, as of Python", `{"contents":[{"parts":[{"file_data":{"file_uri":"u"}}]}]}`, outgoing.ErrOutside, "contents.parts.file_data", "file_data"},
		{"Gemini's caches", `{"cachedContent":"c"}`, outgoing.ErrOutside, "cachedContent", "cachedContent"},
		{"Bedrock's images", `{"messages":[{"content":[{"image":{"source":{"bytes":"x"}}}]}]}`, outgoing.ErrOutside, "messages.content.image.source.bytes", "bytes"},
		{"a search", `{"tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`, outgoing.ErrOutside, "tools.type", "web_search"},
		{"an MCP server of OpenAI's", `{"tools":[{"type":"mcp","server_url":"u"}]}`, outgoing.ErrOutside, "tools.type", "mcp"},
		{"an MCP server of Anthropic's", `{"mcp_servers":[{"url":"u"}]}`, outgoing.ErrOutside, "mcp_servers", "mcp_servers"},
		{"a search of Gemini's", `{"tools":[{"googleSearch":{}}]}`, outgoing.ErrOutside, "tools.googleSearch", "google_search"},
	} {
		opts := outgoing.EstimateOptions{Default: 100}
		_, err := outgoing.Estimate([]byte(c.body), &opts)
		if text := fmt.Sprint(err); !errors.Is(err, c.err) || !strings.Contains(text+",", ": "+c.field+",") && c.field != "" || !strings.Contains(text, c.kind) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, cost := range []string{c.kind, "*"} { // with a cost it is admitted
			opts.Costs = map[string]int64{cost: 1000}
			got, err := outgoing.Estimate([]byte(c.body), &opts)
			if outside := c.err == outgoing.ErrOutside; outside != (err == nil) || outside && got.Input != int64(len(c.body)+1000) {
				t.Errorf("%s, with a cost of %q: %+v, %v", c.name, cost, got, err)
			}
		}
	}
}

// A route must not use up the body, and a request without a copy of it is an error.
func TestEstimateRequestReadsACopy(t *testing.T) {
	const body = `{"max_tokens":5}`
	req := newRequest(t, http.MethodPost, "http://api.test/", strings.NewReader(body))
	got, err := outgoing.EstimateRequest(req, nil)
	if left, _ := io.ReadAll(req.Body); err != nil || got.Output != 5 || string(left) != body {
		t.Errorf("%+v, %v, and %q is left", got, err, left)
	}
	if _, err := outgoing.EstimateRequest(newRequest(t, http.MethodGet, "http://api.test/", nil), nil); !errors.Is(err, outgoing.ErrUnreadable) {
		t.Errorf("without a body: %v", err)
	}
}

// What callers name as they like is no reference.
func TestEstimateOfOrdinaryBodies(t *testing.T) {
	for _, body := range []string{
		`{"tools":[{"type":"custom","name":"t","input_schema":{"properties":{"file_id":{"type":"string"},"fileId":{"type":"string"}}}}]}`,
		`{"messages":[{"content":[{"type":"tool_use","input":{"image_url":"u","file_id":"f"}}]}]}`,
		`{"contents":[{"parts":[{"functionCall":{"args":{"file_id":"f"}}},{"functionResponse":{"response":{"image_url":"u"}}}]}]}`,
		`{"messages":[{"content":[{"type":"document","source":{"type":"text","data":"text"}}]}]}`,
		`{"metadata":{"conversation":"c","Conversation":"d"},"previous_response_id":null,"mcp_servers":[],"text":{"format":{"type":"text"}}}`,
		`{"input":[{"type":"message","id":"m","role":"assistant","content":"a"}],"prompt":"p"}`,
		`{"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"object"}}]}]}`,
		`{"logit_bias":{"1":1,"2":2},"a.b":1,"a.c":2}`,
	} {
		if got, err := outgoing.Estimate([]byte(body), &outgoing.EstimateOptions{Default: 1}); err != nil || got.Total() != int64(len(body)+1) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

func TestEstimateAddsCosts(t *testing.T) {
	body := []byte(`{"max_tokens":10,"messages":[{"content":[{"image_url":{"url":"a"}},{"image_url":{"url":"b"}},{"file_id":"c"}]}]}`)
	opts := &outgoing.EstimateOptions{Costs: map[string]int64{"image_url": 1000, "*": 30}, Overhead: 500}
	if got, err := outgoing.Estimate(body, opts); err != nil || got.Input != int64(len(body))+2*1000+30+500 {
		t.Errorf("%+v, %v", got, err)
	}
	opts.Factor = 0.25
	if got, err := outgoing.Estimate(body, opts); err != nil || got.Input != int64(len(body)+3)/4+2*1000+30+500 || got.Output != 10 {
		t.Errorf("with a factor: %+v, %v", got, err)
	}
}

// What a body costs to read goes by its bytes: names that repeat in every path below them are no lever.
func TestBodiesWithLongPaths(t *testing.T) {
	for _, c := range []struct {
		name           string
		levels, length int
		value          string
		err            error
	}{
		{"a list below long names", 120, 240, "[0" + strings.Repeat(",0", 20_000) + "]", outgoing.ErrUnreadable},
		{"objects below long names", 120, 240, "[0" + strings.Repeat(`,{"a":0}`, 5000) + "]", outgoing.ErrUnreadable},
		{"objects below names that are not too long", 120, 1, "[0" + strings.Repeat(`,{"a":0}`, 5000) + "]", nil},
	} {
		body := strings.Repeat(`{"`+strings.Repeat("a", c.length)+`":`, c.levels) + c.value + strings.Repeat("}", c.levels)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := outgoing.Estimate([]byte(body), &outgoing.EstimateOptions{Default: 1})
		_, _ = new(outgoing.Meter).Write([]byte(body))
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 16 || !errors.Is(err, c.err) {
			t.Errorf("%s: %d bytes took %d MiB: %v", c.name, len(body), mib, err)
		}
	}
	named := `{"input":{"properties":{"` + strings.Repeat("a", 300) + `":{"type":"string"}}},"max_tokens":5}`
	if _, err := outgoing.Estimate([]byte(named), nil); err != nil {
		t.Errorf("a long name that callers choose: %v", err)
	}
}

// Requests and what the vendors' documents report of them: no estimate is too low.
func TestEstimateIsAtLeastTheUsage(t *testing.T) {
	for _, c := range []struct{ request, response string }{
		{`{"model":"gpt-4o","messages":[{"role":"developer","content":"You are a helpful assistant."},{"role":"user","content":"Hello!"}],"max_completion_tokens":10}`,
			`{"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`},
		{`{"model":"gpt-4.1","input":"Tell me a three sentence bedtime story about a unicorn.","max_output_tokens":87}`,
			`{"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"total_tokens":123}}`},
		{`{"model":"claude","max_tokens":256,"messages":[{"role":"user","content":"Hello"}],"stream":true}`, named(`{"type":"message_start","message":{"usage":`+
			`{"input_tokens":25,"output_tokens":1}}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`)},
		{`{"contents":[{"parts":[{"text":"Explain how AI works in a few words"}]}],"generationConfig":{"maxOutputTokens":100,"thinkingConfig":{"thinkingBudget":512}}}`,
			`{"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":100,"thoughtsTokenCount":510,"totalTokenCount":619}}`},
	} {
		var m outgoing.Meter
		_, _ = m.Write([]byte(c.response))
		bound, err := outgoing.Estimate([]byte(c.request), nil)
		if u := m.Usage(); err != nil || !u.Final || bound.Input < u.Input || bound.Output < u.Output {
			t.Errorf("%s: estimated %+v, %v, and used %+v", c.request, bound, err, u)
		}
	}
}

// For any body that Estimate reads, the estimate is at least what encoding/json finds, and what is written beside it
// never makes it smaller.
func FuzzEstimate(f *testing.F) {
	for _, body := range []string{`{"max_tokens":5,"n":2}`, `{"Max_Tokens":5,"max_completion_tokens":1e2}`, `{"a":{"b":[{"max_tokens":"\\\""}]},"max_tokens":3}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := outgoing.Estimate(body, &outgoing.EstimateOptions{Default: 10, Costs: map[string]int64{"*": 0}})
		if err != nil {
			return
		}
		var read struct { // regardless of case, like servers in Go
			Most     json.Number `json:"max_tokens"`
			Complete json.Number `json:"max_completion_tokens"`
			N        json.Number `json:"n"`
		}
		if json.Unmarshal(body, &read) != nil {
			return
		}
		most, _ := read.Most.Float64()
		complete, _ := read.Complete.Float64()
		n, _ := read.N.Float64()
		if want := min(max(most, complete), 1<<31) * max(min(n, 1<<31), 1); float64(got.Output) < min(want, 1<<52) || got.Input != int64(len(body)) {
			t.Fatalf("%+v is below %v", got, want)
		}
		if !got.Named && got.Output < 10 {
			t.Fatalf("%+v is below the default", got)
		}
	})
}
