package goredisstore

import (
	"hash/crc32"

	"github.com/redis/go-redis/v9"

	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

var _ redisstore.Placer = (*scripter)(nil)

// Place implements [redisstore.Placer]: a ring places keys by their tag, not by their slot.
func (s *scripter) Place(key string) (place int, ok bool) {
	ring, ok := s.client.(*redis.Ring)
	if !ok {
		return 0, false
	}
	node, err := ring.GetShardClientForKey(key)
	if err != nil { // no shard is up
		return 0, false
	}
	return int(crc32.ChecksumIEEE([]byte(node.Options().Addr))), true
}

// shard returns the client of the shard that has all keys now. If they are on several, the error is driver.ErrApart.
func shard(ring *redis.Ring, keys []string) (*redis.Client, error) {
	first, err := ring.GetShardClientForKey(keys[0])
	for _, key := range keys[1:] {
		if err != nil {
			break
		}
		var node *redis.Client
		if node, err = ring.GetShardClientForKey(key); err == nil && node != first {
			err = driver.ErrApart
		}
	}
	return first, err
}
