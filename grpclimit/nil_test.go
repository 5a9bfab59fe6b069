package grpclimit_test

import (
	"testing"

	"example.com/sash"
	"example.com/sash/grpclimit"
)

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
