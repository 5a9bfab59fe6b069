package rivals

import (
	"context"
	"fmt"
	"testing"

	"example.com/sash/internal/bench/server"
)

// The replies are those of redis-cell to a burst of five that refills with one a minute. The calls take less than a
// minute together, so seconds that are rounded up are whole minutes.
func TestTheCellScriptRepliesAsRedisCell(t *testing.T) {
	s, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for i, call := range []struct {
		quantity int
		want     string
	}{
		{6, "[1 5 5 -1 0]"}, // more than ever fits
		{1, "[0 5 4 -1 60]"},
		{1, "[0 5 3 -1 120]"},
		{2, "[0 5 1 -1 240]"},
		{2, "[1 5 1 60 240]"},
		{1, "[0 5 0 -1 300]"},
		{0, "[0 5 0 -1 300]"},
		{1, "[1 5 0 60 300]"},
		{6, "[1 5 0 -1 300]"},
	} {
		reply, err := cell.Run(context.Background(), s, []string{"k"}, 4, 1, 60, call.quantity).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(reply); got != call.want {
			t.Errorf("call %d, of %d: %s, want %s", i, call.quantity, got, call.want)
		}
	}
}
