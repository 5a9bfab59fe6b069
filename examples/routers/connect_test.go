package routers

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash/httplimit"
)

// inProtocol answers a call that does not go on in the protocol of its client: Connect, gRPC or gRPC-Web. Without it a
// Connect or gRPC client reads the bare 429 as unavailable, as both protocols say, and may send the call again at once.
// The fields and Retry-After are set already, and RetryInfo says the same to clients that read details.
func inProtocol(opts ...connect.HandlerOption) func(http.ResponseWriter, *http.Request, httplimit.Denial) {
	errorWriter := connect.NewErrorWriter(opts...)
	codes := map[int]connect.Code{
		http.StatusTooManyRequests:    connect.CodeResourceExhausted,
		http.StatusServiceUnavailable: connect.CodeUnavailable,
		http.StatusForbidden:          connect.CodePermissionDenied,
		http.StatusBadRequest:         connect.CodeInvalidArgument,
	}
	return func(w http.ResponseWriter, r *http.Request, d httplimit.Denial) {
		if !errorWriter.IsSupported(r) {
			d.Write(w) // a browser, perhaps
			return
		}
		code, ok := codes[d.Status]
		if !ok {
			code = connect.CodeInternal
		}
		refusal := connect.NewError(code, errors.New(http.StatusText(d.Status)))
		if d.RetryAfter > 0 {
			if detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}); err == nil {
				refusal.AddDetail(detail)
			}
		}
		_ = errorWriter.Write(w, r, refusal) // a client that does not read it is denied all the same
	}
}

// say is a procedure without generated code.
func say(_ context.Context, req *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
	return connect.NewResponse(req.Msg), nil
}

// The handler of a service is one of net/http. Layers of Failures need an interceptor: see package middleware. The pattern of
// a mux is the service, or the procedure if it stands alone.
func Example_connect() {
	limit, err := httplimit.New(newLimiter(), httplimit.Join(httplimit.PeerAddress, httplimit.Pattern),
		&httplimit.Options{Denied: inProtocol()})
	if err != nil {
		log.Fatal(err)
	}
	const procedure = "/demo.v1.EchoService/Say"
	mux := http.NewServeMux()
	mux.Handle(procedure, limit(connect.NewUnaryHandler(procedure, say)))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true // which gRPC needs
	server.StartTLS()
	defer server.Close()

	for _, protocol := range []connect.ClientOption{
		connect.WithProtoJSON(), connect.WithProtoJSON(), // Connect
		connect.WithProtoJSON(), connect.WithGRPC(), connect.WithGRPCWeb(),
	} {
		client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+procedure, protocol)
		res, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello")))
		if refusal := new(connect.Error); errors.As(err, &refusal) {
			fmt.Println(refusal.Code(), refusal.Meta().Get("RateLimit"), "Retry-After:", refusal.Meta().Get("Retry-After"))
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("ok", res.Header().Get("RateLimit"))
	}
	// Output:
	// ok "2/1m";r=1;t=60
	// ok "2/1m";r=0;t=60
	// resource_exhausted "2/1m";r=0;t=60 Retry-After: 60
	// resource_exhausted "2/1m";r=0;t=60 Retry-After: 60
	// resource_exhausted "2/1m";r=0;t=60 Retry-After: 60
}
