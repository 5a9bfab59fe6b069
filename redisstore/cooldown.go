package redisstore

import (
	"context"
	"fmt"
	"strconv"

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
	reply, err := s.send(ctx, coolDown, []string{s.coolDownKey(key)}, string(arg))
	if err != nil || reply == "" {
		return driver.CoolDown{}, err
	}
	if len(reply) != 16 {
		return driver.CoolDown{}, fmt.Errorf("redisstore: a script answered %d bytes where 16 were due", len(reply))
	}
	first := number(reply) // length and guessed
	return driver.CoolDown{Length: int64(first >> 8), Left: int64(number(reply[8:])), Guessed: first&1 != 0}, nil
}

// coolDownKey returns the name of the key of a subject's cool-down. Braces in keys or prefixes that are not from sash.Key
// can make it take a few thousand tries to find one in the slot of the log.
func (s *Store) coolDownKey(key string) string {
	log := s.Key(key, &driver.Policy{Algorithm: driver.SlidingLog})
	name := s.prefix + "cooldown:{" + hashTag(log) + "}:" + key
	for n := 0; slot(name) != slot(log); n++ {
		name = s.prefix + "cooldown:{" + strconv.Itoa(n) + "}:" + key
	}
	return name
}
