package extproc_test

import (
	"strings"
	"testing"
)

func TestWhatTheUpstreamGets(t *testing.T) {
	w := begin(t)
	for _, c := range []struct{ name, user, path, body, want string }{
		{"chat", "x-user", "/v1/chat/completions", `{"n":1,"messages":"<a>"}`, `{"n":1,"messages":"<a>","max_completion_tokens":300}`},
		{"all else as it is", "x-user", "/v1/chat/completions", " { \"t\" : [1.50, {\"max_completion_tokens\":1}] , \"p\": \"\\\\\\\"}\"\n}\n",
			" { \"t\" : [1.50, {\"max_completion_tokens\":1}] , \"p\": \"\\\\\\\"}\"\n,\"max_completion_tokens\":300}\n"},
		{"an escape in a name", "x-user", "/v1/completions", `{"max\u005ftokens": null, "p":1}`, `{"max\u005ftokens":300, "p":1}`},
		{"null", "x-user", "/v1/chat/completions?a=b", `{"max_completion_tokens":null}`, `{"max_completion_tokens":300}`},
		{"completions", "x-user", "/v1/completions", `{"prompt":"a"}`, `{"prompt":"a","max_tokens":300}`},
		{"responses", "x-user", "/v1/responses", `{"input":"a","stream":true}`, `{"input":"a","stream":true,"max_output_tokens":300}`},
		{"embeddings", "x-user", "/v1/embeddings", `{"input":"a"}`, ``},
		{"a field of another API", "x-user", "/v1/chat/completions", `{"max_output_tokens":1}`, `{"max_output_tokens":1,"max_completion_tokens":300}`},
		{"either field of chat", "x-user", "/v1/chat/completions", `{"max_tokens":1}`, ``},
		{"a field of chat", "x-user", "/v1/completions", `{"max_completion_tokens":1}`, `{"max_completion_tokens":1,"max_tokens":300}`},
		{"an escape", "x-user", "/v1/chat/completion%73", `{}`, `{"max_completion_tokens":300}`},
		{"other spellings of a path", "x-user", "/v1/Chat/./Completions//?a", `{}`, `{"max_completion_tokens":300}`},
		{"a count", "x-gem", "/v1beta/models/g:countTokens", `{"contents":"a"}`, ``},
		{"a stream", "x-user", "/v1/chat/completions", `{"max_tokens":5,"stream":true,"stream_options":{"a":1}}`,
			`{"max_tokens":5,"stream":true,"stream_options":{"a":1,"include_usage":true}}`},
		{"a stream, null", "x-user", "/v1/chat/completions", `{"max_tokens":5,"stream":true,"stream_options":null}`,
			`{"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`},
		{"numbers as they are", "x-user", "/v1/chat/completions", `{"seed":12345678901234567890,"t":1.50}`, `{"seed":12345678901234567890,"t":1.50,"max_completion_tokens":300}`},
		{"Anthropic", "x-claude", "/v1/messages", `{"max_tokens":20,"stream":true}`, ``},
		{"Gemini", "x-gem", "/v1beta/models/g:generateContent", `{"generationConfig":{"temperature":0}}`, `{"generationConfig":{"temperature":0,"maxOutputTokens":200}}`},
		{"Gemini without settings", "x-gem", "/v1beta/models/g:streamGenerateContent?alt=sse", `{}`, `{"generationConfig":{"maxOutputTokens":200}}`},
	} {
		s := w.open("domain=ai&descriptor=header:" + c.user)
		body := s.posts(c.path, c.body, c.user, c.name).GetRequestBody()
		if body == nil {
			t.Errorf("%s is refused", c.name)
		}
		if got := string(body.GetResponse().GetBodyMutation().GetBody()); got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
}

// Where the field with the maximum output is not known, the request has to set it.
func TestUnknownPaths(t *testing.T) {
	w := begin(t)
	for _, path := range []string{"/v1/messages", "/v1/chat/completion%2573"} {
		res := w.open("domain=ai&descriptor=header:x-user").posts(path, `{"model":"m"}`).GetImmediateResponse()
		if res.GetStatus().GetCode() != 400 {
			t.Errorf("%s: %v", path, res)
		}
		if res := w.open("domain=ai&descriptor=header:x-user").posts(path, `{"max_tokens":1}`); res.GetRequestBody() == nil {
			t.Errorf("%s with a maximum: %v", path, res)
		}
	}
}

// A rule that holds for one model counts all requests whose upstream may read that model.
func TestTheModelOfARequest(t *testing.T) {
	w := begin(t)
	w.use(`
domain: ai
descriptors:
- key: model
  value: gpt-4
  limits: ["1000/1m"]
  tokens: {format: openai}
`)
	for body, admitted := range map[string]bool{
		`{"model":"gpt-4","max_tokens":100}`:              true,
		`{"mod\u0065l":"gpt-4","max_tokens":100}`:         true,
		`{"model":"gpt-4","Model":"x"}`:                   false,
		`{"Model":"gpt-4"}`:                               false,
		`{"model":"x","model":"gpt-4"}`:                   false,
		`{"model":"gpt-4","model":"x"}`:                   false,
		`{"model":["gpt-4"]}`:                             false,
		`{"model":"gpt-4","temperature":NaN}`:             false,
		`{"model":"x"}{"model":"gpt-4"}`:                  false,
		"\x1f\x8b":                                        false,
		`{"model":"x","messages":[{"model":"gpt-4"}]}`:    true,
		`{"model":null,"metadata":{"Model":1,"model":2}}`: true,
	} {
		before := w.left("model", "gpt-4")
		s := w.open("domain=ai&descriptor=header:model")
		res := s.posts("/v1/chat/completions", body)
		charged := int64(0)
		if admitted && strings.HasSuffix(body, "100}") {
			charged = int64(len(body)) + 100
		}
		status := res.GetImmediateResponse().GetStatus().GetCode()
		if left := w.left("model", "gpt-4"); before-left != charged || admitted != (status == 0) || !admitted && status != 400 {
			t.Errorf("%s: %d charged, %v", body, before-left, res)
		}
		s.leave()
	}
	w.use("domain: ai\ndescriptors: [{key: account, limits: [5/1m]}]")
	if res := w.open("domain=ai&descriptor=account=all").posts("/", "\x1f\x8b"); res.GetRequestBody() == nil {
		t.Errorf("a domain without tokens: %v", res)
	}
}
