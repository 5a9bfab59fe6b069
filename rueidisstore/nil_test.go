package rueidisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"example.com/sash/rueidisstore"
)

type client struct{ rueidis.Client }

func TestConstructorsRefuseNil(t *testing.T) {
	for _, none := range []rueidis.Client{nil, (*client)(nil)} {
		for _, construct := range []func(){
			func() { rueidisstore.New(none, nil) },
			func() { rueidisstore.Scripter(none) },
		} {
			func() {
				defer func() {
					if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "rueidisstore: New needs a client") {
						t.Errorf("%T: it did not say what it needs: %v", none, p)
					}
				}()
				construct()
			}()
		}
	}
}

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) {
	// A look at the cluster's nodes that comes too soon is put off: it sleeps for a second, also when its
	// client is closed meanwhile, and ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
