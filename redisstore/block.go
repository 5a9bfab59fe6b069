package redisstore

import (
	"errors"
	"strconv"

	"example.com/sash/driver"
)

// besideKey returns the name of a key beside that of a subject, such as that of its block, in the same slot. Braces in keys
// or prefixes that are not from sash.Key can make it take a few thousand tries to find it, as for that of a cool-down.
func (s *Store) besideKey(kind, key string, policy *driver.Policy) string {
	own := s.Key(key, policy)
	rest := "}:" + own[len(s.prefix):]
	name := s.prefix + kind + ":{" + hashTag(own) + rest
	for n := 0; slot(name) != slot(own); n++ {
		name = s.prefix + kind + ":{" + strconv.Itoa(n) + rest
	}
	return name
}

// packBlock writes what follows the argument of a decision in that of block.lua.
func packBlock(b *driver.Block) string {
	var buf [16]byte
	return string(appendUint(appendUint(appendUint(buf[:0], 2, b.Refusals), 7, b.Window), 7, b.Length))
}

// cutLefts cuts the end of a reply of block.lua off: the time until the block of each subject ends. A reply without an
// answer has none.
func cutLefts(reply string, subjects int) (rest, lefts string) {
	end := len(reply) - 8*subjects
	if end <= 16 || int64(number(reply)) < 0 {
		return reply, ""
	}
	return reply[:end], reply[end:]
}

var errLefts = errors.New("redisstore: a script returned an impossible length of a block")

// bar makes those answers refusals whose subjects are blocked.
func bar(answers []driver.Answer, lefts string) error {
	for i := 0; len(lefts) >= 8; i, lefts = i+1, lefts[8:] {
		left := number(lefts)
		if left>>53 != 0 {
			return errLefts
		}
		if left > 0 {
			answers[i].Bar(int64(left))
		}
	}
	return nil
}

// Blocks implements [driver.Blocker].
func (s *Store) Blocks() {}
