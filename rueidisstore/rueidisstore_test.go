package rueidisstore_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"example.com/sash/rueidisstore"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) {
	// A look at the cluster's nodes that comes too soon is put off: it sleeps for a second, also when its
	// client is closed meanwhile, and ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func TestNewPanicsWithoutAClient(t *testing.T) {
	defer func() {
		if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "rueidisstore: New needs a client") {
			t.Errorf("it did not say what it needs: %v", p)
		}
	}()
	rueidisstore.New(nil, nil)
}
