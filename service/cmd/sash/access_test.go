package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sash token makes a token, the file of --access lists its digest, and the client with the token may do what the file
// says, in both protocols' JSON. What is refused is in the metrics and in the log.
func TestATokenOpensTheDataPorts(t *testing.T) {
	made := struct{ Token, SHA256 string }{}
	code, out, _ := sash(t, nil, "token", "--json")
	if err := json.Unmarshal([]byte(out), &made); code != 0 || err != nil {
		t.Fatal(code, out, err)
	}
	if _, text, _ := sash(t, nil, "token"); !regexp.MustCompile(`^token   [\w-]{43}\nsha256  [0-9a-f]{64}\n$`).MatchString(text) || strings.Contains(text, made.Token) {
		t.Errorf("sash token prints %q", text)
	}
	file := filepath.Join(t.TempDir(), "access.yaml")
	text := fmt.Sprintf("clients:\n  - name: billing\n    tokens: [%s]\n    allow: [decide]\n    domains: [demo, shop]\n", made.SHA256)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--access", file)
	ask := func(path, body, token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	const one = `{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}]}`
	const refund = `{"domain":"demo","descriptors":[{"entries":[{"key":"remote_address","value":"192.0.2.7"}],"isNegativeHits":true}]}`
	for _, c := range []struct {
		path, body, token string
		want              int
	}{
		{"/v1/allow", one, made.Token, 200},
		{"/v1/allow", one, "", 401},
		{"/v1/allow", one, made.SHA256, 401},
		{"/json", refund, made.Token, 403},
		{"/json", refund, "", 401},
	} {
		if got := ask(c.path, c.body, c.token); got != c.want {
			t.Errorf("%s with the token %q: %d, want %d", c.path, c.token, got, c.want)
		}
	}
	res, err := http.Get(p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	for _, line := range []string{`sash_access_denied_total{reason="unauthenticated"} 3`, `sash_access_denied_total{reason="refund"} 1`} {
		if !strings.Contains(string(metrics), line+"\n") {
			t.Errorf("the metrics have no %s", line)
		}
	}
	if err := p.stop(t); err != nil {
		t.Error(err)
	}
	if log := p.logs.String(); !strings.Contains(log, "a caller was refused") || !strings.Contains(log, "domain=shop") || strings.Contains(log, made.Token) {
		t.Errorf("the log: %s", log)
	}
}
