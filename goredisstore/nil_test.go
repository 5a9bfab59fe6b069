package goredisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
)

func TestConstructorsPanicWithoutAClientThatKeepsCharges(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	panics := func(want string, construct func()) {
		defer func() {
			if p, ok := recover().(string); !ok || !strings.HasPrefix(p, want) {
				t.Errorf("it says %v, want %q", p, want)
			}
		}()
		construct()
	}
	panics("goredisstore: a Ring", func() { goredisstore.New(ring, nil) })
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		panics("goredisstore: New needs a client", func() { goredisstore.New(client, nil) })
		panics("goredisstore: Greet needs a client", func() { goredisstore.Greet(client) })
	}
}
