package rls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

func as(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func raised(req *pb.RateLimitRequest) *pb.RateLimitRequest {
	req.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1_000_000, Unit: typev3.RateLimitUnit_MINUTE}
	return req
}

func givenBack(req *pb.RateLimitRequest) *pb.RateLimitRequest {
	req.Descriptors[0].IsNegativeHits = true
	return req
}

// Without a file nobody empties another's use or raises a limit, over gRPC or as JSON, and everyone is limited.
func TestByDefaultNobodyGivesBackOrSetsALimit(t *testing.T) {
	none := servertest.Must(access.Open("", &access.Options{Log: slog.New(slog.DiscardHandler)}))(t)
	w := begin(t, text, &Options{Access: none})
	w.says("decide", request("ip=a"), "OK: OK 3/MINUTE 2 left 1m0s")
	for what, req := range map[string]*pb.RateLimitRequest{
		"a refund": givenBack(request("ip=a")), "a limit": raised(request("ip=a")), "both, hidden": givenBack(raised(request("ip=a"))),
	} {
		req.Descriptors = append([]*common.RateLimitDescriptor{descriptor("ip=b")}, req.Descriptors...) // not only the first counts
		_, err := w.client.ShouldRateLimit(as(t.Context(), "any"), req)
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "sash serve with --access FILE") {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.says("nothing was given back, charged or raised", request("ip=a"), "OK: OK 3/MINUTE 1 left 1m0s")
	w.says("nor to the other", request("ip=b"), "OK: OK 3/MINUTE 2 left 1m0s")
	body := `{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"a"}],"isNegativeHits":true}]}`
	if rec := post(New(servertest.Decider(t, memstore.New(nil), text), &Options{Access: none}), body); rec.Code != http.StatusForbidden {
		t.Errorf("as JSON: %d %s", rec.Code, rec.Body)
	}
}

// Load balancers check health without credentials. What the service is, and its messages, is for clients.
func TestHealthIsOpenAndReflectionIsNot(t *testing.T) {
	w := begin(t, text, &Options{Access: servertest.Gate(t, "clients: [{name: a, tokens: ["+digest("a")+"], allow: {e: [decide]}}, "+
		"{name: b, tokens: ["+digest("b")+"], allow: [override]}]")})
	checks := healthpb.NewHealthClient(w.conn)
	if res, err := checks.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || res.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", res, err)
	}
	ctx := t.Context()
	watch, err := checks.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream of health: %v", err)
	}
	list := func(ctx context.Context) error {
		stream, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = stream.CloseSend() }()
		// Of a stream that has ended Send may return EOF: Recv has the status.
		_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, err = stream.Recv()
		return err
	}
	if _, err := w.client.ShouldRateLimit(ctx, request("ip=a")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a decision without a token: %v", err)
	}
	if err := list(ctx); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without a token: %v", err)
	}
	if err := list(as(ctx, "b")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("reflection without the right to decide: %v", err)
	}
	if err := list(as(ctx, "a")); err != nil {
		t.Errorf("reflection with one: %v", err)
	}
}

// A right is no licence to keep the store from others: refunds take several calls each, and limits may be decided one
// after the other.
func TestRefundsAndLimitsOfARequestAreBounded(t *testing.T) {
	w := begin(t, text, nil)
	for what, of := range map[string]struct {
		with func(*pb.RateLimitRequest) *pb.RateLimitRequest
		most int
	}{"refunds": {givenBack, decide.MaxRefunds}, "limits": {raised, maxRequestLimits}} {
		for _, n := range []int{of.most, of.most + 1} {
			req := request("ip=x")
			for i := range n {
				one := of.with(request(fmt.Sprint("ip=", i)))
				req.Descriptors = append(req.Descriptors, one.Descriptors...)
			}
			_, err := w.client.ShouldRateLimit(t.Context(), req)
			if status.Code(err) == codes.InvalidArgument != (n > of.most) {
				t.Errorf("%d %s: %v", n, what, err)
			}
		}
	}
}

// sign returns a certificate of a name, signed by itself.
func sign(t *testing.T, name string, serial int64) (pair tls.Certificate, certPEM, keyPEM []byte) {
	t.Helper()
	key := servertest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	secret, err2 := x509.MarshalPKCS8PrivateKey(key)
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	pair, err3 := tls.X509KeyPair(certPEM, keyPEM)
	servertest.Check(t, errors.Join(err1, err2, err3))
	return pair, certPEM, keyPEM
}

func save(t *testing.T, name string, text []byte, at time.Time) {
	t.Helper()
	servertest.Check(t, os.WriteFile(name, text, 0o600))
	servertest.Check(t, os.Chtimes(name, at, at))
}

func TestMutualTLSAndRenewal(t *testing.T) {
	dir := t.TempDir()
	right, rightPEM, _ := sign(t, "envoy.example", 8)
	other, otherPEM, _ := sign(t, "other.example", 9)
	clients, now := append(rightPEM, otherPEM...), time.Now()
	save(t, dir+"/ca.pem", clients, now)
	_, first, firstKey := sign(t, "ratelimit.example", 2)
	save(t, dir+"/cert.pem", first, now)
	save(t, dir+"/key.pem", firstKey, now)
	log := &servertest.Log{}
	config, err := access.TLSFiles{Log: slog.New(slog.NewTextHandler(log, nil)),
		Cert: dir + "/cert.pem", Key: dir + "/key.pem", ClientCA: dir + "/ca.pem", ClientSAN: "envoy.example"}.Config()
	servertest.Check(t, err)
	ask := func(as ...tls.Certificate) (serial int64, err error) {
		clientConfig := &tls.Config{InsecureSkipVerify: true, Certificates: as}
		here, there := net.Pipe()
		defer func() { _ = here.Close() }()
		go func() {
			server := tls.Server(there, config)
			_, _ = server.Write([]byte{1})
			_ = server.Close()
		}()
		client := tls.Client(here, clientConfig)
		_, err = client.Read(make([]byte, 1)) // a server refuses a client after the client's handshake
		if seen := client.ConnectionState().PeerCertificates; len(seen) > 0 {
			serial = seen[0].SerialNumber.Int64()
		}
		return serial, err
	}
	if serial, err := ask(right); err != nil || serial != 2 {
		t.Errorf("certificate %d, %v", serial, err)
	}
	if _, err := ask(); err == nil {
		t.Error("a client without a certificate is served")
	}
	if _, err := ask(other); err == nil {
		t.Error("a client with another name is served")
	}
	save(t, dir+"/cert.pem", []byte("half a cert"), now.Add(time.Second))
	if serial, err := ask(right); err != nil || serial != 2 {
		t.Errorf("while the file is written: certificate %d, %v", serial, err)
	}
	save(t, dir+"/ca.pem", []byte("garbage"), now.Add(time.Second))
	for range 2 {
		if serial, err := ask(right); err != nil || serial != 2 {
			t.Errorf("under garbage for authorities: certificate %d, %v", serial, err)
		}
	}
	if said := log.String(); strings.Count(said, "level=ERROR") != 2 || strings.Count(said, "the last valid ones stay in use") != 2 {
		t.Errorf("not a line for each of two changes: %s", said)
	}
	save(t, dir+"/ca.pem", clients, now.Add(2*time.Second))
	_, second, secondKey := sign(t, "ratelimit.example", 3)
	save(t, dir+"/key.pem", secondKey, now.Add(2*time.Second))
	save(t, dir+"/cert.pem", second, now.Add(2*time.Second))
	if serial, err := ask(right); err != nil || serial != 3 {
		t.Errorf("renewed: certificate %d, %v", serial, err)
	}
}
