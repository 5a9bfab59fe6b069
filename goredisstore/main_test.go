package goredisstore_test

import (
	"testing"

	"go.uber.org/goleak"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
