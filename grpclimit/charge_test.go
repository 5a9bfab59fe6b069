package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
)

func failures(limits ...sash.Limit) grpclimit.Layer {
	return grpclimit.Layer{Name: "failed", Key: grpclimit.Shared("x"), Charge: grpclimit.Failures, Limits: limits}
}

// inFlight allows n calls at once, each for ten minutes at most.
func inFlight(n int64) grpclimit.Layer {
	return grpclimit.Layer{
		Name: "open", Key: grpclimit.Shared("x"), Charge: grpclimit.InFlight,
		Limits: []sash.Limit{sash.Every(n, 10*time.Minute)},
	}
}

// The codes that blame the client are those that google/rpc/code.proto maps to an HTTP status of 4xx; 429 is no failure.
func TestACodeDecidesWhetherACallHasFailed(t *testing.T) {
	failed := []codes.Code{
		codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Canceled,
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		want := grpclimit.Neutral // DeadlineExceeded too: it is of the handler's own, the client's has not passed
		if code == codes.OK {
			want = grpclimit.Succeeded
		} else if slices.Contains(failed, code) {
			want = grpclimit.Failed
		}
		if got := grpclimit.ByCode(grpclimit.Call{Context: t.Context()}, status.New(code, "")); got != want {
			t.Errorf("%v: outcome %d, want %d", code, got, want)
		}
	}
	for name, c := range map[string]struct {
		err  error
		left int64
	}{
		"success forgets the failure before": {nil, 9},
		"a wrapped status":                   {fmt.Errorf("wrapped: %w", status.Error(codes.Unauthenticated, "")), 7},
		"cancelled":                          {fmt.Errorf("query: %w", context.Canceled), 7},
		"a deadline of the handler":          {fmt.Errorf("query: %w", context.DeadlineExceeded), 8},
		"no status":                          {errors.New("no status"), 8},
	} {
		limiter := newLimiter(t, newClock().store(), sash.PerMinute(9))
		var answer error
		layer := failures()
		layer.ResetOnSuccess = true
		client := dial(t, &service{unary: func(context.Context) error { return answer }}, limited(onLayers(t, limiter, nil, layer)))
		answer = status.Error(codes.Unauthenticated, "")
		wantCode(t, call(t.Context(), client), codes.Unauthenticated)
		answer = c.err
		_ = call(t.Context(), client)
		t.Log(name)
		wantLeft(t, limiter, "failed:shared:x", c.left)
	}
}

// streams starts a server whose streams end as end says. Ended receives the error of each, when it is settled.
func streams(t *testing.T, limit *grpclimit.ServerInterceptor, end func(pb.TestService_FullDuplexCallServer) error) (pb.TestServiceClient, <-chan error) {
	t.Helper()
	ended := make(chan error, 10)
	watch := func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := limit.Stream(srv, stream, info, handler)
		ended <- err
		return err
	}
	return dial(t, streamer{end: end}, []grpc.ServerOption{grpc.StreamInterceptor(watch)}), ended
}

// A streamer opens each stream with a message and leaves the rest to end.
type streamer struct {
	pb.UnimplementedTestServiceServer
	end func(pb.TestService_FullDuplexCallServer) error
}

func (s streamer) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
		return err
	}
	return s.end(stream)
}

// begin opens a stream and waits until its handler runs.
func begin(ctx context.Context, t *testing.T, client pb.TestServiceClient) (pb.TestService_FullDuplexCallClient, error) {
	t.Helper()
	stream, err := client.FullDuplexCall(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	return stream, err
}

// A stream is one call in flight, and one attempt, until its handler returns.
func TestAStreamIsSettledAtItsEnd(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), sash.PerHour(3))
	client, ended := streams(t, onLayers(t, limiter, nil, inFlight(1), failures()), func(stream pb.TestService_FullDuplexCallServer) error {
		if _, err := stream.Recv(); err != io.EOF {
			return err
		}
		return status.Error(codes.Unauthenticated, "wrong password")
	})
	for i := range 3 {
		stream := must(begin(t.Context(), t, client))(t)
		wantLeft(t, limiter, "open:shared:x", 2)
		wantLeft(t, limiter, "failed:shared:x", 2-int64(i))
		_, err := begin(t.Context(), t, client)
		wantCode(t, err, codes.ResourceExhausted)
		if i < 2 { // a stream may end at any moment
			wantRetryAfter(t, err, time.Second)
			if v := violations(t, err); len(v) != 1 || v[0].GetQuotaId() != "open:1 at once" || v[0].GetDescription() != "1 call at once" {
				t.Errorf("violations %v", v)
			}
		}
		<-ended // of the refused one
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		wantCode(t, err, codes.Unauthenticated)
		<-ended
		wantLeft(t, limiter, "open:shared:x", 3)
		wantLeft(t, limiter, "failed:shared:x", 2-int64(i))
	}
}

// The client ends the attempt, and the handler returns what it then gets, or nothing. The attempt has failed all the
// same, and does not forget the failures before it.
func TestAClientThatLeavesHasFailed(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(context.Context) (context.Context, context.CancelFunc)
		code  codes.Code
	}{
		"it hangs up": {context.WithCancel, codes.Canceled},
		"its deadline passes": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		}, codes.DeadlineExceeded},
	} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, silent %v", name, silent), func(t *testing.T) {
				limiter := newLimiter(t, newClock().store(), sash.PerHour(3))
				layer := failures()
				layer.ResetOnSuccess = true
				gone := make(chan struct{}) // the server's clock may reach the deadline first
				client, ended := streams(t, onLayers(t, limiter, nil, inFlight(2), layer), func(stream pb.TestService_FullDuplexCallServer) error {
					<-stream.Context().Done()
					<-gone
					if silent {
						return nil
					}
					return stream.Context().Err()
				})
				ctx, leave := c.leave(t.Context())
				defer leave()
				stream := must(begin(ctx, t, client))(t)
				if c.code == codes.Canceled {
					leave()
				}
				_, err := stream.Recv()
				close(gone)
				wantCode(t, err, c.code)
				<-ended
				wantLeft(t, limiter, "failed:shared:x", 2)
				wantLeft(t, limiter, "open:shared:x", 3)
			})
		}
	}
}

// A panic is a fault of the server: nothing stays charged, and the panic goes on.
func TestAHandlerThatPanicsIsSettled(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), sash.PerHour(3))
	limit := onLayers(t, limiter, nil, inFlight(1), failures())
	wantPanic(t, "broken", func() {
		_, _ = limit.Unary(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("broken") })
	})
	wantLeft(t, limiter, "failed:shared:x", 3)
	wantLeft(t, limiter, "open:shared:x", 3)
}
