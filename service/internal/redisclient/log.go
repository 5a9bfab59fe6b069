package redisclient

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Log sends what clients of [Inspect] report on their own, such as connections that broke, to a logger at the
// level of debugging. It concerns every such client of the process.
func Log(to *slog.Logger) { redis.SetLogger(logger{to}) }

type logger struct{ to *slog.Logger }

// Printf implements the client's interface.
func (l logger) Printf(ctx context.Context, format string, args ...any) {
	if l.to.Enabled(ctx, slog.LevelDebug) {
		l.to.DebugContext(ctx, "redis client", "says", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
