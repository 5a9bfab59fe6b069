package redisclient

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) {
	Log(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
