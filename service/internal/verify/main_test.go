package verify

import (
	"testing"

	"go.uber.org/goleak"
)

// What has ended leaves no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
