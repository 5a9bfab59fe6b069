package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

const adminToken = "a-token-of-enough-length"

// administer sends a request to an admin port and reads its answer; into may be nil.
func administer(t *testing.T, client *http.Client, method, url, body string, into any) int {
	t.Helper()
	req := newRequest(t, method, url, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil && json.Unmarshal(text, into) != nil {
		t.Fatalf("%s %s: %d %s", method, url, res.StatusCode, text)
	}
	return res.StatusCode
}

// allow requests a unit of the built-in example's subject, and returns the status and which limit refused.
func allow(t *testing.T, p *service, address string) (int, string) {
	t.Helper()
	body := `{"domain":"demo","entries":[{"key":"remote_address","value":"` + address + `"}]}`
	req := newRequest(t, http.MethodPost, p.url+"/v1/allow", strings.NewReader(body))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		RefusedBy *string `json:"refused_by"`
		Limits    []struct{ Name string }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	say := ""
	if answer.RefusedBy != nil {
		say = *answer.RefusedBy + ", again after " + res.Header.Get("Retry-After")
	} else if len(answer.Limits) > 0 {
		say = answer.Limits[0].Name
	}
	return res.StatusCode, say
}

// One instance follows the bans and overrides of another, in both protocols, and both need no more rights on Redis than
// the doctor prints.
func TestBansAndOverridesHoldOnAllInstances(t *testing.T) {
	server := redistest.Start(t)
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	_, line, _ := strings.Cut(out, "the limiter its own user: ")
	line, _, _ = strings.Cut(line, "\n")
	server.Must(t, strings.Fields(strings.Replace(line, "PASSWORD", "secret", 1))...)
	file := tempFile(t, "token", adminToken+"\n")
	url := "redis://limiter:secret@" + server.Addr()
	a := serve(t, "--redis", url, "--admin-token-file", file)
	b := serveIn(t, []string{"SASH_ADMIN_TOKEN=" + adminToken}, append(freePorts, "--redis", url)...)

	const of = `{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.9"}],"expires":"1h"`
	var made struct{ ID string }
	if status := administer(t, http.DefaultClient, "POST", a.admin+"/admin/v1/bans", of+`}`, &made); status != 200 {
		t.Fatalf("the ban: %d", status)
	}
	if status, say := allow(t, a, "192.0.2.9"); status != 429 || !strings.HasPrefix(say, "ban, again after 3") {
		t.Errorf("at once, where it was made: %d %s", status, say)
	}
	servertest.Wait(t, "the other instance does not follow the ban", func() bool {
		_, say := allow(t, b, "192.0.2.9") // which the rule refuses too, after ten calls
		return strings.HasPrefix(say, "ban")
	})
	res, err := b.dial(t).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "demo", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.9"}}},
	}})
	if err != nil || res.OverallCode != pb.RateLimitResponse_OVER_LIMIT || res.Statuses[0].CurrentLimit.GetName() != "ban" ||
		res.Statuses[0].CurrentLimit.GetUnit() != 0 || res.Statuses[0].DurationUntilReset.AsDuration() < 55*time.Minute {
		t.Errorf("over gRPC: %v, %v", res, err)
	}
	if status, say := allow(t, b, "192.0.2.10"); status != 200 {
		t.Errorf("somebody else: %d %s", status, say)
	}
	if status := administer(t, http.DefaultClient, "DELETE", b.admin+"/admin/v1/bans/"+made.ID, "", nil); status != 200 {
		t.Errorf("deleted where it was not made: %d", status)
	}
	if status := administer(t, http.DefaultClient, "POST", b.admin+"/admin/v1/overrides", of+`,"limits":["1000/1h"]}`, nil); status != 200 {
		t.Errorf("the override: %d", status)
	}
	servertest.Wait(t, "the first instance does not follow", func() bool {
		status, say := allow(t, a, "192.0.2.9")
		return status == 200 && say == "1000/1h"
	})
	c := serve(t, "--redis", url) // follows from its first answer on
	if status, say := allow(t, c, "192.0.2.9"); status != 200 || say != "1000/1h" {
		t.Errorf("a new instance: %d %s", status, say)
	}
	if status := administer(t, http.DefaultClient, "GET", c.admin+"/admin/v1/overrides", "", nil); status != 403 {
		t.Errorf("an instance without a token: %d", status)
	}
	for _, p := range []*service{a, b, c} {
		if err := p.stop(t); err != nil {
			t.Error(err)
		}
		if logs := p.logs.String(); strings.Contains(logs, "level=ERROR") || strings.Contains(logs, "level=WARN") || strings.Contains(logs, adminToken) {
			t.Errorf("logs: %s", logs)
		}
	}
	if !strings.Contains(a.logs.String(), "kind=ban subject=demo:remote_address:192.0.2.9") || !strings.Contains(a.logs.String(), `by="token 1"`) {
		t.Errorf("what was done is not logged: %s", a.logs)
	}
}

// certify writes a certificate and its key, signed by an authority or by itself, and returns both.
func certify(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ca == nil {
		ca, caKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: text}} {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// With an authority for clients, only clients with its certificate connect, and they need no token.
func TestAdminWithCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, key := certify(t, dir, "authority", nil, nil)
	certify(t, dir, "server", ca, key)
	certify(t, dir, "operator", ca, key)
	p := serve(t, "--admin-tls-cert", dir+"/server.pem", "--admin-tls-key", dir+"/server.key", "--admin-client-ca", dir+"/authority.pem")
	if !strings.HasPrefix(p.admin, "https://") {
		t.Errorf("it says %s", p.admin)
	}
	pair, err := tls.LoadX509KeyPair(dir+"/operator.pem", dir+"/operator.key")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for name, protocols := range map[string][]string{"HTTP/2": {"h2"}, "HTTP/1.1": {"http/1.1"}} {
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}, NextProtos: protocols},
			ForceAttemptHTTP2: name == "HTTP/2",
		}
		defer transport.CloseIdleConnections()
		var made struct{ By string }
		status := administer(t, &http.Client{Transport: transport}, "POST", p.admin+"/admin/v1/bans",
			`{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.9"}],"expires":"1h"}`, &made)
		if status != 200 || made.By != "certificate operator" {
			t.Errorf("%s: %d, by %q", name, status, made.By)
		}
	}
	if status, _ := allow(t, p, "192.0.2.9"); status != 429 {
		t.Errorf("the ban does not hold: %d", status)
	}
	stranger := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	defer stranger.CloseIdleConnections()
	req := newRequest(t, http.MethodGet, p.admin+"/stats", bytes.NewReader(nil))
	if res, err := (&http.Client{Transport: stranger}).Do(req); err == nil {
		_ = res.Body.Close()
		t.Errorf("without a certificate: %d", res.StatusCode)
	}
}
