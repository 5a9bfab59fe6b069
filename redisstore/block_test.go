package redisstore

import (
	"testing"

	"example.com/sash/driver"
)

// On a cluster one script reads both keys.
func TestABlockIsInTheSlotOfItsSubject(t *testing.T) {
	names := make(map[string]string)
	for _, prefix := range []string{"", "sash:", "{app}:", "a{b", "a}b", "{}"} {
		for _, key := range []string{"user:42", "{org:1}:user", "a}b", "{}", "x{y", "}{", "{a}{b}", "{{}}"} {
			s := &Store{prefix: prefix}
			for _, p := range []*driver.Policy{{}, {Algorithm: driver.GCRA}} {
				own, name := s.Key(key, p), s.besideKey("block", key, p)
				if slot(own) != slot(name) || names[name] != "" && names[name] != own || own == name {
					t.Errorf("the block of %q is %q, in slot %d and not in %d", own, name, slot(name), slot(own))
				}
				names[name] = own
			}
		}
	}
}
