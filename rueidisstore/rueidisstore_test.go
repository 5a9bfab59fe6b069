package rueidisstore_test

import (
	"testing"

	"go.uber.org/goleak"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) {
	// A look at the cluster's nodes that comes too soon is put off: it sleeps for a second, also when its
	// client is closed meanwhile, and ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
