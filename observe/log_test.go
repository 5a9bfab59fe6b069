package observe

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"example.com/sash"
)

// However many prefixes there are, a log remembers few, writes few lines a second, and counts what it does not write.
func TestALogOfManyPrefixesIsBounded(t *testing.T) {
	lines := &counting{}
	log := Log(slog.New(lines)).(*logs)
	began, all := time.Now(), int64(0)
	for second := range 3 {
		lines.n = 0
		for range 3 {
			for i := range 3 * mostLines {
				log.Observe(context.Background(), sash.Decision{Prefix: "tenant-" + strconv.Itoa(i), Began: began.Add(time.Duration(second) * time.Second)})
				all++
			}
		}
		if len(log.last) > mostLines+1 || lines.n > mostLines+1 {
			t.Errorf("second %d: %d lines, and %d are remembered", second, lines.n, len(log.last))
		}
	}
	counted := lines.counted
	for _, w := range log.last {
		counted += w.skipped
	}
	if counted != all {
		t.Errorf("%d of %d decisions are written or counted", counted, all)
	}
}

// A counting handler counts lines, and the decisions that they stand for.
type counting struct {
	slog.Handler
	n       int
	counted int64
}

func (c *counting) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (c *counting) Handle(_ context.Context, r slog.Record) error {
	c.n++
	c.counted++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "not_logged_before" {
			c.counted += a.Value.Int64()
		}
		return true
	})
	return nil
}
