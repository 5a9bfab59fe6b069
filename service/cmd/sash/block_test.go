package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	library "example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

func TestResetEndsABlock(t *testing.T) {
	addr := redistest.Start(t).Addr()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	limiter, err := library.New(goredisstore.New(client, nil), &library.Options{Block: library.Block{Refusals: 1, For: time.Hour}}, library.PerHour(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, refused := range []bool{false, true} {
		if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Blocked != refused {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if code, _, text := sash(t, []string{"SASH_REDIS=" + addr}, "reset", "k"); code != 0 {
		t.Fatalf("reset: exit %d, %s", code, text)
	}
	if res, err := limiter.Allow(t.Context(), "k"); err != nil || !res.Allowed {
		t.Errorf("after a reset: %+v, %v", res, err)
	}
}
