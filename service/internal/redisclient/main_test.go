package redisclient

import (
	"testing"

	"example.com/sash/service/internal/servertest"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) { servertest.NoLeak(m) }
