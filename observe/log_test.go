package observe

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"example.com/sash"
)

// However many prefixes there are, a log remembers few.
func TestWhatALogRemembersIsBounded(t *testing.T) {
	log := Log(slog.New(slog.NewTextHandler(t.Output(), nil))).(*logs)
	for i := range 3 * mostLines {
		log.Observe(context.Background(), sash.Decision{Prefix: "tenant-" + strconv.Itoa(i), Began: time.Now()})
		if n := len(log.last); n > mostLines {
			t.Fatalf("%d prefixes are remembered", n)
		}
	}
	if len(log.last) == 0 {
		t.Error("nothing is remembered")
	}
}
