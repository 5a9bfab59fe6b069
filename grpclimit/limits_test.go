package grpclimit_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
)

// A caller has the limits of its plan, and keeps its charges when it changes plans.
func TestLimitsOfAPlan(t *testing.T) {
	plans := map[string][]sash.Limit{"pro": {sash.PerMinute(4)}, "basic": nil}
	failed := errors.New("no such plan")
	var reported error
	limiter := newLimiter(t, newClock().store(), sash.PerMinute(2))
	client := dial(t, &service{}, limited(onLayers(t, limiter, &grpclimit.ServerOptions{
		OnError: func(_ context.Context, _ grpclimit.Call, err error) { reported = err },
	}, grpclimit.Layer{
		Key: grpclimit.Shared("all"),
		LimitsFor: func(ctx context.Context, _ grpclimit.Call) ([]sash.Limit, error) {
			sent, _ := metadata.FromIncomingContext(ctx)
			switch plan := sent.Get("plan")[0]; plan {
			case "none":
				return nil, status.Error(codes.PermissionDenied, "no plan")
			case "broken":
				return nil, failed
			case "wrong":
				return []sash.Limit{sash.PerMinute(-1)}, nil
			default:
				return plans[plan], nil
			}
		},
	})))
	on := func(plan string) error {
		return call(metadata.AppendToOutgoingContext(t.Context(), "plan", plan), client)
	}
	wantCode(t, on("basic"), codes.OK) // the limiter's own limits
	wantCode(t, on("basic"), codes.OK)
	wantCode(t, on("basic"), codes.ResourceExhausted)
	wantCode(t, on("pro"), codes.OK) // two of its four are charged
	wantCode(t, on("pro"), codes.OK)
	err := on("pro")
	wantCode(t, err, codes.ResourceExhausted)
	if v := violations(t, err); len(v) != 1 || v[0].GetQuotaId() != "4/1m" {
		t.Errorf("violations %v, want 4/1m", v)
	}

	wantCode(t, on("none"), codes.PermissionDenied)
	if reported != nil {
		t.Errorf("a status that the function chose is reported: %v", reported)
	}
	wantCode(t, on("broken"), codes.Internal)
	if !errors.Is(reported, failed) {
		t.Errorf("reported %v, want the function's error", reported)
	}
	wantCode(t, on("wrong"), codes.Internal)
	if !errors.Is(reported, sash.ErrInvalidLimit) {
		t.Errorf("reported %v, want an invalid limit", reported)
	}
}
