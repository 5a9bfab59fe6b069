package memstore

import (
	"context"
	"strconv"
	"sync"

	"example.com/sash/driver"
)

// texts are those of [driver.Swapper], by key.
type texts struct {
	mu  sync.Mutex
	all map[string]text // guarded by mu
}

type text struct {
	text string
	ends int64
}

// mostTexts bounds them. They are few: what the users of a store have agreed on.
const mostTexts = 1024

var _ driver.Swapper = (*Store)(nil)

// Swap implements [driver.Swapper]. Texts are not part of a snapshot. The only error is [ErrFull], with 1,024 keys.
func (s *Store) Swap(_ context.Context, key string, swap driver.Swap) (driver.Swapped, error) {
	sh := s.shard(s.hash(key))
	sh.mu.Lock()
	now := sh.clock.now()
	sh.mu.Unlock()
	s.texts.mu.Lock()
	defer s.texts.mu.Unlock()
	is := s.texts.all[key]
	if is.ends <= now {
		is = text{}
	}
	if swap.New != swap.Old && is.text == swap.Old {
		if _, known := s.texts.all[key]; !known && !s.texts.room(now) {
			return driver.Swapped{}, ErrFull
		}
		is = text{swap.New, now + swap.Lasts}
		s.texts.all[key] = is
	}
	return driver.Swapped{At: now, Process: strconv.FormatUint(s.process, 36), Text: is.text}, nil
}

// room reports whether there is room for another key, and makes some of keys whose text has ended.
func (t *texts) room(now int64) bool {
	if t.all == nil {
		t.all = make(map[string]text)
	}
	if len(t.all) < mostTexts {
		return true
	}
	for key, is := range t.all {
		if is.ends <= now {
			delete(t.all, key)
		}
	}
	return len(t.all) < mostTexts
}
