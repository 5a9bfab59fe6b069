package adaptertest

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// A WAIT that the server refuses says nothing of the script before it.
func testWaitPermission(t *testing.T, open Open) {
	server := redistest.Start(t)
	conn := connect(t, open, server.Addr(), Options{Store: &redisstore.Options{Replicas: 1, ReplicaTimeout: time.Millisecond}})
	look := limiter(t, connect(t, open, server.Addr(), Options{}).Store)
	server.Must(t, "ACL", "SETUSER", "default", "-wait")
	_, err := limiter(t, conn.Store).Allow(patient(t), "k")
	if !errors.Is(err, sash.ErrUnavailable) || !redisstore.Misconfigured(err) || redisstore.Uncharged(err) {
		t.Errorf("%v: Misconfigured is %v, Uncharged is %v", err, redisstore.Misconfigured(err), redisstore.Uncharged(err))
	}
	for err := err; err != nil; err = errors.Unwrap(err) {
		if text := err.Error(); len(text) > 6 && text[:6] == "NOPERM" {
			t.Errorf("what the server said of WAIT is in the chain: %v", err)
		}
	}
	if got := remaining(t, look, "k"); got != 9 {
		t.Errorf("%d of 10 are left", got)
	}
}
