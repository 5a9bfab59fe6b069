package denials

import (
	"hash/maphash"
	"sync"
)

// An lru keeps the denials of the keys that were used last, at most so many. It is safe for concurrent use.
type lru struct {
	seed   maphash.Seed
	shards []lruShard
}

const lruShards = 64 // of a large one; a power of two

// A lruShard is the keys of some hashes, from the one that was used last to the one that is dropped next.
type lruShard struct {
	mu    sync.Mutex
	most  int
	nodes map[string]*node // guarded by mu, as are the links of nodes
	ring  node             // its next was used last
}

type node struct {
	key        string
	denial     *denial
	prev, next *node
}

func newLRU(most int) *lru {
	n := lruShards
	if most < 100*lruShards { // of so few the last used are dropped exactly
		n = 1
	}
	c := &lru{seed: maphash.MakeSeed(), shards: make([]lruShard, n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.most, s.nodes = (most+n-1)/n, make(map[string]*node)
		s.ring.prev, s.ring.next = &s.ring, &s.ring
	}
	return c
}

func (c *lru) shard(key string) *lruShard {
	return &c.shards[maphash.String(c.seed, key)&uint64(len(c.shards)-1)]
}

// get returns the denial of a key, or nil.
func (c *lru) get(key string) *denial {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[key]
	if n == nil {
		return nil
	}
	s.use(n)
	return n.denial
}

// update replaces the denial of a key by what f returns for it, or for nil. It changes nothing if f returns nil.
func (c *lru) update(key string, f func(old *denial) *denial) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[key]
	var old *denial
	if n != nil {
		old = n.denial
	}
	d := f(old)
	if d == nil {
		return
	}
	if n == nil {
		if len(s.nodes) >= s.most {
			s.drop(s.ring.prev)
		}
		n = &node{key: key}
		n.prev, n.next = n, n
		s.nodes[key] = n
	}
	n.denial = d
	s.use(n)
}

func (c *lru) remove(key string) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[key]; n != nil {
		s.drop(n)
	}
}

// use makes a node the one that was used last. The caller holds mu.
func (s *lruShard) use(n *node) {
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = &s.ring, s.ring.next
	n.prev.next, n.next.prev = n, n
}

// drop forgets a node. The caller holds mu.
func (s *lruShard) drop(n *node) {
	n.prev.next, n.next.prev = n.next, n.prev
	delete(s.nodes, n.key)
}
