package redisclient

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Log sends what clients of [Inspect] report on their own, such as broken connections, to a logger at debug level. It
// concerns every such client of the process, and replaces the logger of an earlier call. Before the first call reports
// are dropped. It may be called concurrently.
func Log(to *slog.Logger) { current.Store(to) }

var current atomic.Pointer[slog.Logger]

func init() { redis.SetLogger(logger{}) } // once: go-redis reads its logger without a lock

type logger struct{}

// Printf implements the client's interface.
func (logger) Printf(ctx context.Context, format string, args ...any) {
	if to := current.Load(); to != nil && to.Enabled(ctx, slog.LevelDebug) {
		to.DebugContext(ctx, "redis client", "says", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
