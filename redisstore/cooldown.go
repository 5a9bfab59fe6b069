package redisstore

import (
	"context"
	"fmt"

	"example.com/sash/driver"
)

var coolDown = load("cooldown.lua")

var _ driver.Cooler = (*Store)(nil)

// CoolDown implements [driver.Cooler]. A cool-down has a key of its own, in the slot of the subject's sliding
// log. It does not wait for replicas.
func (s *Store) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	guessed := int64(0)
	if c.Guessed {
		guessed = 1
	}
	arg := appendUint(appendUint(nil, 7, max(0, c.Length)), 1, guessed)
	beside := s.Key(key, &driver.Policy{Algorithm: driver.SlidingLog})
	reply, err := s.send(ctx, coolDown, []string{s.mark("cooldown", beside, key)}, string(arg))
	if err != nil || reply == "" {
		return driver.CoolDown{}, err
	}
	if len(reply) != 16 {
		return driver.CoolDown{}, fmt.Errorf("redisstore: a script answered %d bytes where 16 were due", len(reply))
	}
	first := number(reply) // length and guessed
	return driver.CoolDown{Length: int64(first >> 8), Left: int64(number(reply[8:])), Guessed: first&1 != 0}, nil
}
