package redisclient

import (
	"log/slog"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Log(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
