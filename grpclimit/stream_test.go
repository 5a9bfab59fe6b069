package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"example.com/sash"
	"example.com/sash/grpclimit"
)

// echo sends n messages on a new stream, each after the answer to the one before. It returns the number of
// answers, and the error that ended the stream.
func echo(t *testing.T, client pb.TestServiceClient, n int) (answers int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return 0, err
	}
	for range n {
		_ = stream.Send(&pb.StreamingOutputCallRequest{}) // Recv returns why a stream has ended
		if _, err := stream.Recv(); err != nil {
			return answers, err
		}
		answers++
	}
	if err := stream.CloseSend(); err != nil {
		return answers, err
	}
	switch _, err = stream.Recv(); err {
	case io.EOF:
		return answers, nil
	case nil:
		return answers, errors.New("an answer to no message")
	}
	return answers, err
}

func TestStreamIsChargedWhenItStarts(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), sash.PerMinute(2))
	impl := &service{}
	client := dial(t, impl, limited(onServer(t, limiter, grpclimit.Shared("all"), nil)))
	for range 2 {
		if answers, err := echo(t, client, 5); answers != 5 || err != nil {
			t.Fatalf("%d answers, %v", answers, err)
		}
	}
	answers, err := echo(t, client, 5)
	wantCode(t, err, codes.ResourceExhausted)
	wantRetryAfter(t, err, time.Minute)
	if len(violations(t, err)) != 1 || answers != 0 || impl.served() != 2 {
		t.Errorf("%d answers, %d streams served: %v", answers, impl.served(), err)
	}
}
