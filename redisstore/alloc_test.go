package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/redisstore"
)

// A server answers at once that there is room.
type server struct{}

var room = strings.Repeat("\x00", 8) + "\x00\x06\x0a\x24\x18\x1e\x40\x00" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x00\x01", 4)

func (server) Run(context.Context, *redisstore.Script, []string, string) (string, error) {
	return room, nil
}

func (server) Cluster() bool { return false }

// What is sent has to be allocated: the key's name, the list of keys and the argument.
func TestADecisionAllocatesWhatItSends(t *testing.T) {
	for name, opts := range map[string]*sash.Options{
		"log":     nil,
		"buckets": {Algorithm: sash.SlidingBuckets, Resolution: 10 * time.Millisecond},
	} {
		l, err := sash.New(redisstore.New(server{}, nil), opts, sash.PerMinute(10))
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if res, err := l.Allow(t.Context(), "user:42"); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
		}); n > 3 {
			t.Errorf("%s: %v allocations a decision, want 3", name, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	l, err := sash.New(redisstore.New(server{}, nil), nil, sash.PerMinute(10))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = l.Allow(b.Context(), "user:42")
	}
}
