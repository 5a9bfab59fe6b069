package grpclimit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
)

func wantLeft(t testing.TB, l *sash.Limiter, key string, want int64) {
	t.Helper()
	if res, err := l.Peek(t.Context(), key); err != nil || res.Remaining != want {
		t.Errorf("%d left for %s, want %d: %v", res.Remaining, key, want, err)
	}
}

// with adds metadata to the calls of a context.
func with(t testing.TB, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), pairs...)
}

// A refusal by one layer charges none, and names what refused. A layer has a cost and calls of its own.
func TestLayersAreOneDecision(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, clock.store(), sash.PerMinute(100))
	client := dial(t, &service{}, limited(onLayers(t, limiter, nil,
		grpclimit.Layer{Name: "all", Key: grpclimit.Shared("x"), Limits: []sash.Limit{sash.PerHour(3)}},
		grpclimit.Layer{Name: "customer", Key: grpclimit.Metadata("customer"), Limits: []sash.Limit{sash.PerMinute(2)}},
		grpclimit.Layer{
			Name: "bytes", Key: grpclimit.Shared("x"),
			Cost:  func(grpclimit.Call) int64 { return 10 },
			Match: func(c grpclimit.Call) bool { return metadata.ValueFromIncomingContext(c.Context, "large") != nil },
		},
	)))
	ann, bob := with(t, "customer", "ann", "large", "yes"), with(t, "customer", "bob")

	wantCode(t, call(ann, client), codes.OK)
	wantCode(t, call(ann, client), codes.OK)
	err := call(ann, client)
	wantCode(t, err, codes.ResourceExhausted)
	wantRetryAfter(t, err, time.Minute)
	if v := violations(t, err); len(v) != 1 || v[0].GetQuotaId() != "customer:2/1m" || v[0].GetDescription() != "2 calls per minute" {
		t.Errorf("violations %v", v)
	}
	wantLeft(t, limiter, "all:shared:x", 98) // of the limiter's hundred
	wantLeft(t, limiter, "bytes:shared:x", 80)

	wantCode(t, call(bob, client), codes.OK)
	err = call(ann, client) // refused by two, and the longer one counts
	wantRetryAfter(t, err, time.Hour)
	if v := violations(t, err); len(v) != 2 || v[0].GetQuotaId() != "all:3/1h" || v[1].GetQuotaId() != "customer:2/1m" {
		t.Errorf("violations %v", v)
	}
	if got, want := status.Convert(err).Message(), "limited to 3 calls per hour; retry after 1h0m0s"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	wantLeft(t, limiter, "bytes:shared:x", 80)
}

func TestWrongLayersAreErrors(t *testing.T) {
	_, err := grpclimit.NewServerLayers(newLimiter(t, newClock().store(), sash.PerMinute(1)), nil, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "grpclimit: ") || !strings.Contains(err.Error(), "at least one layer") {
		t.Errorf("error %v", err)
	}
}

func TestAnInterceptorNeedsALimiterAndAKey(t *testing.T) {
	limiter, key := newLimiter(t, newClock().store(), sash.PerMinute(1)), grpclimit.Shared("all")
	wantPanic(t, "grpclimit: an interceptor needs a limiter, from sash.New", func() {
		_, _ = grpclimit.NewServerInterceptor(nil, key, nil)
	})
	wantPanic(t, "grpclimit: an interceptor needs a limiter, from sash.New", func() {
		_, _ = grpclimit.NewServerLayers(nil, []grpclimit.Layer{{Key: key}}, nil)
	})
	wantPanic(t, "grpclimit: an interceptor needs a key function, such as PeerAddress", func() {
		_, _ = grpclimit.NewServerInterceptor(limiter, nil, nil)
	})
}
