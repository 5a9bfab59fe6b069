package redisbench

import (
	"fmt"
	"time"

	"example.com/sash"
)

// memory returns the bytes that a key takes for each of the entries in it: MEMORY USAGE, which counts
// the value, the key's name and Redis's own records, divided by the entries.
func (s *server) memory(c contender, entries int, units int64) (float64, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	j := job{"memory", 1, []sash.Limit{sash.Every(units, time.Hour)}}
	t, err := s.decide(c, []job{j}, entries)
	if err != nil {
		return 0, err
	}
	if t.allowed != entries {
		return 0, fmt.Errorf("%s admitted %d of %d", c.name, t.allowed, entries)
	}
	bytes, err := s.process.Do("MEMORY", "USAGE", c.calls(j)[0].keys[0], "SAMPLES", "0")
	if err != nil {
		return 0, err
	}
	n, ok := bytes.(int64)
	if !ok {
		return 0, fmt.Errorf("%s left no key behind", c.name)
	}
	return float64(n) / float64(entries), nil
}
