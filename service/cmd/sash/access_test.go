package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
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
	put(t, file, text)
	p := serve(t, "--access", file)
	ask := func(path, body, token string) int {
		req := newRequest(t, http.MethodPost, p.url+path, strings.NewReader(body))
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
	_, metrics := get(t, p.admin+"/metrics")
	for _, line := range []string{`sash_access_denied_total{reason="unauthenticated"} 3`, `sash_access_denied_total{reason="refund"} 1`} {
		if !strings.Contains(metrics, line+"\n") {
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

// One certificate makes both data ports TLS, clients show one of the authority, and the file has its name's rights.
func TestTheDataPortsWithCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, key := certify(t, dir, "authority", nil, nil)
	for _, name := range []string{"server", "edge.example.com", "other.example.com"} {
		certify(t, dir, name, ca, key)
	}
	file := filepath.Join(dir, "access.yaml")
	put(t, file, "clients: [{name: edge, certificates: [Edge.example.com], allow: [decide, refund]}]\n")
	p := serve(t, "--access", file, "--tls-cert", dir+"/server.pem", "--tls-key", dir+"/server.key", "--tls-client-ca", dir+"/authority.pem")
	if !strings.HasPrefix(p.url, "https://") {
		t.Errorf("it says %s", p.url)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for name, want := range map[string]struct {
		status int
		code   codes.Code
	}{"edge.example.com": {200, codes.OK}, "other.example.com": {401, codes.Unauthenticated}, "": {0, codes.Unavailable}} {
		shown := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
		if name != "" {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
			if err != nil {
				t.Fatal(err)
			}
			shown.Certificates = []tls.Certificate{pair}
		}
		for _, protocol := range []string{"h2", "http/1.1"} {
			secured := shown.Clone()
			secured.NextProtos = []string{protocol}
			transport := &http.Transport{TLSClientConfig: secured, ForceAttemptHTTP2: protocol == "h2"}
			got := 0
			res, err := (&http.Client{Transport: transport}).Post(p.url+"/v1/allow", "application/json",
				strings.NewReader(`{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}]}`))
			if err == nil {
				got = res.StatusCode
				_ = res.Body.Close()
			}
			transport.CloseIdleConnections()
			if got != want.status {
				t.Errorf("%q over %s: %d %v, want %d", name, protocol, got, err, want.status)
			}
		}
		conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(credentials.NewTLS(shown)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "demo", Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.8"}}, IsNegativeHits: true,
		}}})
		_ = conn.Close()
		if status.Code(err) != want.code {
			t.Errorf("%q over gRPC: %v, want %v", name, err, want.code)
		}
	}
	put(t, dir+"/server.pem", "none")
	for n, addr := range []string{strings.TrimPrefix(p.url, "https://"), p.grpc} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatalf("with a wrong file in place of the one in use: %v", err)
		}
		_ = conn.Close()
		if log := p.logs.String(); strings.Count(log, "level=ERROR msg=\"a changed file of TLS is wrong") != n+1 {
			t.Errorf("the service's log does not have the wrong file: %s", log)
		}
	}
}

func TestCredentialsAreSetUpWrong(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/empty", "\n")
	for name, c := range map[string]struct {
		env  []string
		args []string
		say  string
	}{
		"half a pair":         {nil, []string{"--tls-cert", "x.pem"}, "--tls-cert and --tls-key belong together"},
		"an authority alone":  {nil, []string{"--tls-client-ca", "x.pem"}, "needs them"},
		"no such certificate": {nil, []string{"--tls-cert", "x.pem", "--tls-key", "x.key"}, "TLS of HTTP and gRPC"},

		"no token file":             {nil, []string{"--admin-token-file", dir + "/none"}, "no such file"},
		"an empty token file":       {nil, []string{"--admin-token-file", dir + "/empty"}, "is empty"},
		"a short token":             {[]string{"SASH_ADMIN_TOKEN=short"}, nil, "at least 16"},
		"half of the admin's pair":  {nil, []string{"--admin-tls-cert", dir + "/x.pem"}, "belong together"},
		"the admin's authority":     {nil, []string{"--admin-client-ca", dir + "/x.pem"}, "needs them"},
		"no certificate of admin's": {nil, []string{"--admin-tls-cert", dir + "/x.pem", "--admin-tls-key", dir + "/x.key"}, "TLS of the admin address"},
	} {
		code, out, err := sash(t, c.env, append([]string{"serve", "--addr", "127.0.0.1:0"}, c.args...)...)
		if code != 2 || out != "" || !strings.Contains(err, c.say) {
			t.Errorf("%s: exit %d, %q, %q; want 2 and %q", name, code, out, err, c.say)
		}
	}
}

// The command that sash serve prints works, or says what it needs.
func TestTheCommandToTryWorksOrNamesTheToken(t *testing.T) {
	dir := t.TempDir()
	config, file := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "access.yaml")
	write := func(path, text string) {
		put(t, path, text)
	}
	write(config, "domain: a\ndescriptors: [{key: k, limits: [9/1m]}]\n---\ndomain: b\ndescriptors: [{key: k, limits: [9/1m]}]\n")
	client := fmt.Sprintf("clients: [{name: c, tokens: [%x], allow: [decide]}]\n", sha256.Sum256([]byte("secret")))
	for _, c := range []struct{ what, access, says, status string }{
		{"anyone", "anonymous: {allow: [decide]}\n", "Try it:\n", "200"},
		{"anyone in one domain", "anonymous: {allow: [decide], domains: [b]}\n", "Try it:\n", "200"},
		{"a client", client, "Try it, with the token of a client in " + file + " that may decide in the domain a:\n", "200"},
	} {
		write(file, c.access)
		said := announced(t, "--config", config, "--access", file)
		_, command, _ := strings.Cut(said, "\n\n  ")
		command = strings.Replace(command, "TOKEN", "secret", 1)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command).Output()
		if !strings.Contains(said, c.says) || err != nil || !strings.HasPrefix(string(out), "HTTP/1.1 "+c.status) {
			t.Errorf("%s: %s\n%s %v", c.what, said, out, err)
		}
	}
}

// announced starts sash serve and returns what it prints for people.
func announced(t *testing.T, args ...string) string {
	t.Helper()
	return serveIn(t, nil, append([]string{"--drain-delay", "0s", "--addr", "127.0.0.1:0", "--grpc-addr", "", "--admin-addr", ""}, args...)...).greets
}
