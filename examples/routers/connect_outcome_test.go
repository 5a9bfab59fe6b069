package routers

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash"
	"example.com/sash/middleware"
)

// limits is an interceptor for layers of Failures. In front of the handler httplimit sees 200 for every gRPC call and
// every stream, whatever their code is; here the code of a call is its outcome, in each protocol.
type limits struct{ gate *middleware.Gate[call] }

// A call is what keys are made of.
type call struct {
	procedure, addr string
	header          http.Header
}

// address returns the client's address as the key, of IPv6 its network. The header of a trusted proxy would be in
// call.header.
func address(c call) (string, error) {
	peer, err := netip.ParseAddrPort(c.addr)
	if err != nil {
		return "", err
	}
	return middleware.AddressKey(peer.Addr().Unmap().WithZone(""), middleware.DefaultIPv6Bits), nil
}

func (l limits) serve(ctx context.Context, c call, handler func() error) error {
	d, err := l.gate.Decide(ctx, c)
	switch {
	case err != nil:
		return connect.NewError(connect.CodeUnavailable, errors.New("the call cannot be taken at the moment"))
	case !d.Limited():
		return handler()
	case !d.Result.Allowed:
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("retry after %v", d.Result.RetryAfter))
	}
	outcome := middleware.Neutral // of a handler that panics
	defer func() { d.Settle(ctx, outcome) }()
	if err = handler(); err == nil {
		outcome = middleware.Succeeded
		return nil
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied,
		connect.CodeCanceled, connect.CodeDeadlineExceeded: // to leave early is no way out
		outcome = middleware.Failed
	}
	return err
}

func (l limits) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		err = l.serve(ctx, call{req.Spec().Procedure, req.Peer().Addr, req.Header()}, func() (err error) {
			res, err = next(ctx, req)
			return err
		})
		return res, err
	}
}

func (l limits) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return l.serve(ctx, call{conn.Spec().Procedure, conn.Peer().Addr, conn.RequestHeader()}, func() error { return next(ctx, conn) })
	}
}

func (l limits) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// Two wrong passwords a minute for each address, in whichever protocol.
func Example_connectFailures() {
	gate, err := middleware.NewGate(newLimiter(), []middleware.Layer[call]{
		{Name: "wrong", Key: address, Charge: middleware.Failures},
		{Name: "at once", Key: address, Charge: middleware.InFlight, Limits: []sash.Limit{sash.Every(10, time.Hour)}},
	}, middleware.GateOptions[call]{OnError: func(c call, err error) { log.Print(c.procedure, ": ", err) }})
	if err != nil {
		log.Fatal(err)
	}
	login := func(_ context.Context, req *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		if req.Msg.GetValue() != "right" {
			return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
		}
		return connect.NewResponse(req.Msg), nil
	}
	const procedure = "/demo.v1.LoginService/Login"
	server := httptest.NewUnstartedServer(connect.NewUnaryHandler(procedure, login, connect.WithInterceptors(limits{gate})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	for _, try := range []struct {
		password string
		protocol connect.ClientOption
	}{
		{"right", connect.WithGRPC()}, {"wrong", connect.WithGRPC()}, {"right", connect.WithProtoJSON()},
		{"wrong", connect.WithGRPCWeb()}, {"right", connect.WithGRPC()},
	} {
		client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+procedure, try.protocol)
		_, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String(try.password)))
		fmt.Println(try.password, err)
	}
	// Output:
	// right <nil>
	// wrong unauthenticated: wrong password
	// right <nil>
	// wrong unauthenticated: wrong password
	// right resource_exhausted: retry after 1m0s
}
