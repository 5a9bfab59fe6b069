package redisstore

import (
	"strings"
	"testing"

	"example.com/sash/driver"
)

// Slots as a Redis server gives them for CLUSTER KEYSLOT.
func TestSlot(t *testing.T) {
	for key, want := range map[string]uint16{
		"":                     0,
		"foo":                  12182,
		"123456789":            12739, // the check value of CRC-16/XMODEM
		"{user1000}.following": 3443,
		"{user1000}.followers": 3443,
		"user1000":             3443,
		"foo{}{bar}":           8363, // an empty tag is none
		"foo{{bar}}zap":        4015, // the tag is "{bar"
		"{bar":                 4015,
		"foo{bar}{zap}":        5061, // the first tag counts
		"bar":                  5061,
	} {
		if got := slot(key); got != want {
			t.Errorf("%q is in slot %d, not %d", key, got, want)
		}
	}
}

func TestACoolDownIsInTheSlotOfItsLog(t *testing.T) {
	for _, prefix := range []string{"sash:", "{app}:", "odd{:", "odd}:", "{}:"} {
		s := &Store{prefix: prefix}
		for _, key := range []string{"user:42", "{t1}:user:42", "a}b", "a{b", "{}", "}{", "{{a}}"} {
			log, name := s.Key(key, &driver.Policy{Algorithm: driver.SlidingLog}), s.coolDownKey(key)
			if slot(name) != slot(log) {
				t.Errorf("%q is in slot %d, and its cool-down %q in %d", log, slot(log), name, slot(name))
			}
			if !strings.HasPrefix(name, prefix+"cooldown:") || !strings.HasSuffix(name, ":"+key) {
				t.Errorf("the cool-down of %q is called %q", key, name)
			}
		}
	}
}

// On a cluster one script reads both keys.
func TestABlockIsInTheSlotOfItsSubject(t *testing.T) {
	names := make(map[string]string)
	for _, prefix := range []string{"", "sash:", "{app}:", "a{b", "a}b", "{}"} {
		for _, key := range []string{"user:42", "{org:1}:user", "a}b", "{}", "x{y", "}{", "{a}{b}", "{{}}"} {
			s := &Store{prefix: prefix}
			for _, p := range []*driver.Policy{{}, {Algorithm: driver.GCRA}} {
				own := s.Key(key, p)
				name := s.blockKey(own)
				if slot(own) != slot(name) || names[name] != "" && names[name] != own || own == name {
					t.Errorf("the block of %q is %q, in slot %d and not in %d", own, name, slot(name), slot(own))
				}
				names[name] = own
			}
		}
	}
}
