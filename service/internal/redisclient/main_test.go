package redisclient

import (
	"log/slog"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) {
	Log(slog.New(slog.DiscardHandler))
	servertest.NoLeak(m)
}
