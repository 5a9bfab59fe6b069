package goredisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
)

func TestConstructorsRefuseNil(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		for name, construct := range map[string]func(){
			"goredisstore: New needs a client":   func() { goredisstore.New(client, nil) },
			"goredisstore: Greet needs a client": func() { goredisstore.Greet(client) },
		} {
			func() {
				defer func() {
					if p, ok := recover().(string); !ok || !strings.HasPrefix(p, name) {
						t.Errorf("%T: said %v, want %q", client, p, name)
					}
				}()
				construct()
			}()
		}
	}
}
