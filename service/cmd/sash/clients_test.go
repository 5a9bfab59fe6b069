//go:build clients

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	grpcurlVersion = "v1.9.4"
	limitMethod    = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	healthMethod   = "grpc.health.v1.Health/Check"
)

// A wireCall is a method and a request in the protocol's JSON.
type wireCall struct {
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
}

// A wireAnswer is the code, and the response in the protocol's JSON.
type wireAnswer struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Response struct {
		OverallCode string `json:"overallCode"`
		Status      string `json:"status"` // of health
		Statuses    []struct {
			Code         string `json:"code"`
			CurrentLimit *struct {
				Name            string `json:"name"`
				RequestsPerUnit int    `json:"requestsPerUnit"`
				Unit            string `json:"unit"`
			} `json:"currentLimit"`
			LimitRemaining     int64  `json:"limitRemaining"`
			DurationUntilReset string `json:"durationUntilReset"`
		} `json:"statuses"`
		ResponseHeadersToAdd []struct{ Key, Value string } `json:"responseHeadersToAdd"`
	} `json:"response"`
}

func (a *wireAnswer) String() string {
	if code := strings.ToUpper(strings.ReplaceAll(a.Code, "_", "")); code != "OK" {
		return code
	}
	if a.Response.Status != "" {
		return a.Response.Status
	}
	var statuses []string
	for _, st := range a.Response.Statuses {
		text := st.Code
		if l := st.CurrentLimit; l != nil {
			text += fmt.Sprintf(" %s%d/%s %d left", l.Name, l.RequestsPerUnit, l.Unit, st.LimitRemaining)
		}
		statuses = append(statuses, text)
	}
	return a.Response.OverallCode + ": " + strings.Join(statuses, " | ")
}

// A clientTLS names files: the authority that the client trusts, and the client's certificate, if any.
type clientTLS struct{ ca, cert, key string }

func (f *clientTLS) args() (args []string) {
	for _, file := range []string{f.ca, f.cert, f.key} {
		if file != "" {
			args = append(args, file)
		}
	}
	return args
}

// selfSigned writes a self-signed certificate, for the server and for its client.
func selfSigned(t *testing.T) *clientTLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &clientTLS{cert: dir + "/cert.pem", key: dir + "/key.pem"}
	f.ca = f.cert
	put(t, f.cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	put(t, f.key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return f
}

// A wireClient is another project's program that sends calls.
type wireClient struct {
	name string
	ask  func(t *testing.T, addr string, files *clientTLS, calls []wireCall) []wireAnswer
}

// schema writes the protocol's messages and all types that they use, for clients that do not read the schema from the
// server.
func schema(t *testing.T) string {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i))
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	add(pb.File_envoy_service_ratelimit_v3_rls_proto)
	add(healthpb.File_grpc_health_v1_health_proto)
	text, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "schema.binpb")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// lines runs a client that reads all calls from standard input.
func lines(command ...string) func(*testing.T, string, *clientTLS, []wireCall) []wireAnswer {
	return func(t *testing.T, addr string, files *clientTLS, calls []wireCall) []wireAnswer {
		t.Helper()
		args := append(command[1:len(command):len(command)], addr, schema(t))
		cmd := exec.CommandContext(t.Context(), command[0], append(args, files.args()...)...)
		var in, out, log bytes.Buffer
		for _, c := range calls {
			if err := json.NewEncoder(&in).Encode(c); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &log
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", command[0], err, &log)
		}
		var answers []wireAnswer
		for decoder := json.NewDecoder(&out); decoder.More(); {
			var a wireAnswer
			if err := decoder.Decode(&a); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		return answers
	}
}

// grpcurl runs the program once for each call. It reads the schema from the server.
func grpcurl(program string) func(*testing.T, string, *clientTLS, []wireCall) []wireAnswer {
	return func(t *testing.T, addr string, files *clientTLS, calls []wireCall) []wireAnswer {
		t.Helper()
		flags := []string{"-plaintext"}
		if files.ca != "" {
			flags = []string{"-cacert", files.ca}
		}
		if files.cert != "" {
			flags = append(flags, "-cert", files.cert, "-key", files.key)
		}
		var answers []wireAnswer
		for _, c := range calls {
			var out, log bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, append(flags, "-connect-timeout", "5", "-max-time", "10", "-emit-defaults", "-d", string(c.Request), addr, c.Method)...)
			cmd.Stdout, cmd.Stderr = &out, &log
			var a wireAnswer
			if err := cmd.Run(); err == nil {
				a.Code = "OK"
				if err := json.Unmarshal(out.Bytes(), &a.Response); err != nil {
					t.Fatalf("%v: %s", err, &out)
				}
			} else if a.Message = log.String(); strings.Contains(a.Message, "Failed to dial") {
				a.Code = "UNAVAILABLE"
			} else if _, code, ok := strings.Cut(a.Message, "Code: "); ok {
				a.Code, _, _ = strings.Cut(code, "\n")
			} else {
				t.Fatalf("%v: %s", err, &log)
			}
			answers = append(answers, a)
		}
		return answers
	}
}
