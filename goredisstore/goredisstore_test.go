package goredisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/sash"
	"example.com/sash/driver"
)

// quiet asks for no notifications, as New says: some of these tests wait for replicas.
var quiet = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	v, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
