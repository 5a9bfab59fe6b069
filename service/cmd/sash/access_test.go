package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// sash token makes a token, the file of --access lists its digest, and the client with the token may decide, also by the
// command that sash serve prints.
func TestATokenOpensTheDataPorts(t *testing.T) {
	_, out, _ := sash(t, nil, "token", "--json")
	made := decode[struct{ Token, SHA256 string }](t, out)
	if _, text, _ := sash(t, nil, "token"); !regexp.MustCompile(`^token   [\w-]{43}\nsha256  [0-9a-f]{64}\n$`).MatchString(text) || strings.Contains(text, made.Token) {
		t.Errorf("sash token prints %q", text)
	}
	file := tempFile(t, "access.yaml", "clients: [{name: billing, tokens: ["+made.SHA256+"], allow: [decide], domains: [demo]}]\n")
	p := serve(t, "--access", file)
	_, command, _ := strings.Cut(p.greets, "Try it, with the token of a client in "+file+":\n\n  ")
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "TOKEN", made.Token, 1)).Output(); err != nil || !strings.HasPrefix(string(out), "HTTP/1.1 200") {
		t.Errorf("%s: %s %v", p.greets, out, err)
	}
	for token, want := range map[string]int{made.Token: 200, "": 401, made.SHA256: 401} {
		if res, _ := send(t, "POST", p.url+"/v1/allow", subject("demo", "remote_address", "a"), "Authorization", "Bearer "+token); res.StatusCode != want {
			t.Errorf("with the token %q: %d, want %d", token, res.StatusCode, want)
		}
	}
	p.shows(t, "/metrics", `sash_access_denied_total{reason="unauthenticated"} 2`)
}

// The files of examples/resp let everyone bring limits along over RESP, and open nothing else: no rule can be replaced, no
// charge forgotten, and no key kept for longer than a day.
func TestCommandsBringTheirLimitsBesideTheRules(t *testing.T) {
	const example = "../../../examples/resp/"
	p := serve(t, "--config", example+"limits.yaml", "--access", example+"access.yaml", "--resp-addr", "127.0.0.1:0")
	client := redis.NewClient(&redis.Options{Addr: regexp.MustCompile(`  RESP +(\S+):`).FindStringSubmatch(p.greets)[1]})
	defer func() { _ = client.Close() }()
	do := func(command string) (any, error) {
		var args []any
		for _, word := range strings.Fields(command) {
			args = append(args, word)
		}
		return client.Do(t.Context(), args...).Result()
	}
	for _, command := range []string{"CL.THROTTLE user123 15 30 60", "SASH.ALLOW user123 LIMIT 25/5s", "SASH.ALLOW web ENTRY visitor ann"} {
		if got, err := do(command); err != nil {
			t.Errorf("%s: %v, %v", command, got, err)
		}
	}
	for _, command := range []string{"CL.THROTTLE k 0 1 34560000", "SASH.RESET user123 LIMIT 25/5s", "SASH.RESET web ENTRY visitor ann"} {
		if got, err := do(command); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH ") {
			t.Errorf("%s: %v, %v", command, got, err)
		}
	}
}

// The start says for each address who reaches it and what they may do there without credentials, and warns of what is open
// to other machines, of tokens that others can read, and of nothing else.
func TestTheStartSaysWhatIsOpenToWhom(t *testing.T) {
	listed := "clients: [{name: a, tokens: [" + strings.Repeat("4c", 32) + "], allow: [decide]}]\n"
	secret := tempFile(t, "token", strings.Repeat("k", 40))
	const machines, plain, readable = "callers from other machines need no credentials", "tokens cross the network in plain text", "every user of this machine can read the tokens"
	for _, tt := range []struct {
		access, addr string
		mode         os.FileMode
		says         string
		warns        []string
	}{
		{"", "127.0.0.1:0", 0o600, `this machine: without credentials {"*": [decide]}`, nil},
		{"", ":0", 0o644, `other machines: without credentials {"*": [decide]}`, []string{machines, readable}},
		{"anonymous: {allow: {demo: [decide, override]}}", ":0", 0o600, `other machines: without credentials {"demo": [decide, override]}`, []string{machines}},
		{listed, "127.0.0.1:0", 0o600, "this machine: without credentials nothing", nil},
		{listed, ":0", 0o604, "other machines: without credentials nothing", []string{plain, readable}},
		{listed + "anonymous: {allow: [decide]}", ":0", 0o640, `other machines: without credentials {"*": [decide]}`, []string{machines, plain}},
	} {
		servertest.Check(t, os.Chmod(secret, tt.mode))
		args := []string{"--addr", tt.addr, "--admin-token-file", secret}
		if tt.access != "" {
			args = append(args, "--access", tempFile(t, "access.yaml", tt.access))
		}
		p := serve(t, args...)
		if !regexp.MustCompile(`(?m)^    http   \S+:\d+ +`+regexp.QuoteMeta(tt.says)).MatchString(p.greets) ||
			!regexp.MustCompile(`(?m)^    grpc   127\.0\.0\.1:\d+ +this machine: `).MatchString(p.greets) ||
			!regexp.MustCompile(`(?m)^    admin  127\.0\.0\.1:\d+ +this machine: without credentials metrics and state`).MatchString(p.greets) {
			t.Errorf("%q at %s: %s", tt.access, tt.addr, p.greets)
		}
		log := p.stopped(t)
		for _, text := range []string{machines, plain, readable} {
			if strings.Contains(log, text) != slices.Contains(tt.warns, text) {
				t.Errorf("%q at %s with %v: %q is in the log or not: %s", tt.access, tt.addr, tt.mode, text, log)
			}
		}
	}
}

// An authority signs the certificates of a directory, of which its own is authority.pem.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certify returns an authority in a directory of its own, with certificates of some names.
func certify(t *testing.T, names ...string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	for i, name := range append([]string{"authority"}, names...) {
		key := servertest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: i == 0, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if i == 0 {
			a.cert, a.key = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
		private, err2 := x509.MarshalPKCS8PrivateKey(key)
		servertest.Check(t, errors.Join(err, err2))
		if i == 0 {
			a.cert, _ = x509.ParseCertificate(der)
		}
		put(t, a.file(name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
		put(t, a.file(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	}
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// client is the TLS of a client that trusts the authority, and shows the certificate of a name, or none.
func (a *authority) client(t *testing.T, name string, protocols ...string) *tls.Config {
	t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), NextProtos: protocols}
	config.RootCAs.AddCert(a.cert)
	if name != "" {
		pair := servertest.Must(tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key")))(t)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func (a *authority) http(t *testing.T, name, protocol string) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: a.client(t, name, protocol), ForceAttemptHTTP2: protocol == "h2"}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Certificates make the ports TLS, clients show one of the authority, and the file has its name's rights.
func TestThePortsWithCertificates(t *testing.T) {
	ca := certify(t, "server", "edge.example.com", "other.example.com")
	file := tempFile(t, "access.yaml", "clients: [{name: edge, certificates: [Edge.example.com], allow: [decide]}]\n")
	p := serve(t, "--access", file, "--tls-cert", ca.file("server.pem"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("authority.pem"),
		"--admin-tls-cert", ca.file("server.pem"), "--admin-tls-key", ca.file("server.key"), "--admin-client-ca", ca.file("authority.pem"))
	for name, want := range map[string]struct {
		status int
		code   codes.Code
	}{"edge.example.com": {200, codes.OK}, "other.example.com": {401, codes.Unauthenticated}, "": {0, codes.Unavailable}} {
		got := 0
		res, err := ca.http(t, name, "http/1.1").Post(p.url+"/v1/allow", "application/json", strings.NewReader(subject("demo", "remote_address", "192.0.2.7")))
		if err == nil {
			got = res.StatusCode
			_ = res.Body.Close()
		}
		conn, failed := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(credentials.NewTLS(ca.client(t, name))))
		servertest.Check(t, failed)
		_, failed = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), descriptors("demo", "remote_address=192.0.2.8"))
		_ = conn.Close()
		if got != want.status || status.Code(failed) != want.code {
			t.Errorf("%q: %d %v, and over gRPC %v; want %+v", name, got, err, failed, want)
		}
	}
	// Operators of the admin port need no token with a certificate.
	var made struct{ By string }
	ban := subject("demo", "remote_address", "192.0.2.9", `,"expires":"1h"`)
	status := administer(t, ca.http(t, "other.example.com", "h2"), "POST", p.admin+"/admin/v1/bans", ban, &made)
	if status != 200 || made.By != "certificate other.example.com" {
		t.Errorf("%d, by %q", status, made.By)
	}
	if res, err := ca.http(t, "", "h2").Get(p.admin + "/stats"); err == nil {
		_ = res.Body.Close()
		t.Errorf("without a certificate: %d", res.StatusCode)
	}
}

// The port of gRPC serves clients of the name in Envoy's variable, takes certificates that are renewed, and keeps the last valid ones.
func TestMutualTLSAndRenewal(t *testing.T) {
	ca, renewed := certify(t, "sash", "envoy.example", "other.example"), certify(t, "sash")
	p := serveIn(t, envoysPorts(redistest.Start(t), "LOG_FORMAT=text", "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+ca.file("sash.pem"),
		"GRPC_SERVER_TLS_KEY="+ca.file("sash.key"), "GRPC_CLIENT_TLS_CACERT="+ca.file("authority.pem"), "GRPC_CLIENT_TLS_SAN=envoy.example"),
		"--config", tempFile(t, "limits.yaml", "domain: edge\ndescriptors: [{key: k, limits: [1/1m]}]\n"))
	seconds := time.Duration(0)
	save := func(name, text string) { // at another time than before, whatever the clock of the files
		put(t, ca.file(name), text)
		seconds += time.Second
		servertest.Check(t, os.Chtimes(ca.file(name), time.Time{}, time.Now().Add(seconds)))
	}
	ask := func(what, name string, want *authority) {
		t.Helper()
		config := ca.client(t, name)
		config.InsecureSkipVerify, config.NextProtos = true, []string{"h2"}
		conn, err := tls.Dial("tcp", p.grpc, config)
		if err == nil {
			defer func() { _ = conn.Close() }()
			_, err = conn.Read(make([]byte, 1)) // a server refuses a client after the client's handshake
		}
		switch {
		case err != nil && want != nil, err == nil && want == nil:
			t.Errorf("%s: %v", what, err)
		case want != nil && conn.ConnectionState().PeerCertificates[0].CheckSignatureFrom(want.cert) != nil:
			t.Errorf("%s: the wrong certificate", what)
		}
	}
	ask("the client", "envoy.example", ca)
	ask("no certificate", "", nil)
	ask("another name", "other.example", nil)
	authority := string(readFile(t, ca.file("authority.pem")))
	save("sash.pem", "half a cert")
	ask("while a file is written", "envoy.example", ca)
	save("authority.pem", "garbage")
	ask("under garbage for authorities", "envoy.example", ca)
	ask("and again", "envoy.example", ca)
	if n := strings.Count(p.logs.String(), "the last valid ones stay in use"); n != 2 {
		t.Errorf("%d lines for two changes: %s", n, p.logs)
	}
	save("authority.pem", authority)
	save("sash.key", string(readFile(t, renewed.file("sash.key"))))
	save("sash.pem", string(readFile(t, renewed.file("sash.pem"))))
	ask("renewed", "envoy.example", renewed)
}

const adminToken = "a-token-of-enough-length"

// administer sends a request to an admin port and reads its answer; into may be nil.
func administer(t *testing.T, client *http.Client, method, url, body string, into any) int {
	t.Helper()
	res, text := sendBy(t, client, method, url, body, "Authorization", "Bearer "+adminToken)
	if into != nil && json.Unmarshal([]byte(text), into) != nil {
		t.Fatalf("%s %s: %d %s", method, url, res.StatusCode, text)
	}
	return res.StatusCode
}
