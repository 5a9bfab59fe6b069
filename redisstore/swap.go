package redisstore

import (
	"context"
	"fmt"

	"example.com/sash/driver"
)

var swap = load("swap.lua")

var _ driver.Swapper = (*Store)(nil)

// swapHead is the number of bytes before the text in the reply of swap.lua.
const swapHead = 7 + 12

// Swap implements [driver.Swapper], with a key of its own: "sash:text:user:42". It does not wait for replicas.
func (s *Store) Swap(ctx context.Context, key string, w driver.Swap) (driver.Swapped, error) {
	most := 3 * driver.MaxAhead
	if w.Lasts < 0 || w.Lasts > most || len(w.Old) > driver.MaxText || len(w.New) > driver.MaxText || w.New == "" && w.Old != "" {
		return driver.Swapped{}, fmt.Errorf("redisstore: a text of %d bytes for %d µs in place of one of %d bytes cannot be kept",
			len(w.New), w.Lasts, len(w.Old))
	}
	arg := appendUint(appendUint(nil, 7, w.Lasts), 2, int64(len(w.Old)))
	reply, err := s.send(ctx, swap, []string{s.prefix + "text:" + key}, string(arg)+w.Old+w.New)
	if err != nil {
		return driver.Swapped{}, err
	}
	if len(reply) < swapHead {
		return driver.Swapped{}, fmt.Errorf("redisstore: a script returned %d bytes instead of %d and a text", len(reply), swapHead)
	}
	return driver.Swapped{At: int64(number("\x00" + reply)), Process: reply[7:swapHead], Text: reply[swapHead:]}, nil
}
