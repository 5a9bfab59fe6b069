package lease

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// An id names the leases of a key under one policy: units that were leased under other limits are not spent.
type id struct {
	key    string
	policy uint64 // a fingerprint, the same in all processes
}

func identify(req *driver.Request) id {
	p := req.Policy
	const odd = 0xff51afd7ed558ccd // of MurmurHash3
	sum := (uint64(p.Algorithm)<<8 ^ uint64(len(p.Limits)) ^ uint64(p.Resolution)<<16 ^ odd) * odd
	for i := range p.Limits {
		sum = (sum ^ uint64(p.Limits[i].Units)) * odd
		sum = (sum>>32 ^ sum ^ uint64(p.Limits[i].Window)) * odd
	}
	return id{req.Key, sum ^ sum>>32}
}

// String returns the key of the leases in a holder.
func (n id) String() string {
	return n.key + "#" + hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, n.policy))
}

// A holder is a [driver.Holder] that knows leases by key and policy.
type holder interface {
	spend(ctx context.Context, name id, s driver.Spending) (driver.Held, error)
	bring(ctx context.Context, name id, e driver.Errand) (kept bool, err error)
	takeBack(ctx context.Context, name id, began, keep int64) (units int64, err error)
	forget(ctx context.Context, name id) error
}

// shared is the holder of a region.
type shared struct{ driver.Holder }

func (h shared) spend(ctx context.Context, name id, s driver.Spending) (_ driver.Held, err error) {
	defer caught(&err)
	s.Key = name.String()
	return h.Spend(ctx, s)
}

func (h shared) bring(ctx context.Context, name id, e driver.Errand) (_ bool, err error) {
	defer caught(&err)
	e.Key = name.String()
	return h.Bring(ctx, e)
}

func (h shared) takeBack(ctx context.Context, name id, began, keep int64) (_ int64, err error) {
	defer caught(&err)
	return h.Return(ctx, name.String(), began, keep)
}

func (h shared) forget(ctx context.Context, name id) (err error) {
	defer caught(&err)
	return h.Forget(ctx, name.String())
}

// caught makes a panic of the holder an error: many of its callers are in the background.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("lease: the holder of the region's leases panicked: %v", r)
	}
}

const (
	shards       = 64  // a power of two
	keysPerShard = 256 // keys whose demand is known; the home decides calls of other keys one by one
)

// private is the holder of one process.
type private struct {
	start  time.Time // instants are durations since then: reading the wall clock too takes twice as long
	seed   maphash.Seed
	shards [shards]shard
}

// A shard holds the leases of some keys.
type shard struct {
	mu   sync.Mutex
	keys map[uint64]*entry // by hash; guarded by mu, with what it points to
}

// An entry is the leases of a key under one policy.
type entry struct {
	name   id
	leases window.Leases
}

func newPrivate() *private {
	p := &private{start: time.Now(), seed: maphash.MakeSeed()}
	for i := range p.shards {
		p.shards[i].keys = make(map[uint64]*entry)
	}
	return p
}

// shard returns where the leases of a name are, and their hash.
func (p *private) shard(name id) (*shard, uint64) {
	hash := maphash.String(p.seed, name.key) ^ name.policy
	return &p.shards[hash&(shards-1)], hash
}

func (p *private) now() int64 { return 1 + time.Since(p.start).Microseconds() }

func (p *private) spend(_ context.Context, name id, s driver.Spending) (held driver.Held, _ error) {
	p.take(name, &s, &held)
	return held, nil
}

// take is spend without copies.
func (p *private) take(name id, s *driver.Spending, held *driver.Held) {
	sh, hash := p.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := p.now()
	e := sh.keys[hash]
	if e == nil && sh.room(now) {
		e = &entry{name: name}
		sh.keys[hash] = e
	}
	if e == nil || e.name != name { // there is no room, or another name has the same hash
		*held = driver.Held{At: now, Alone: true}
		return
	}
	e.leases.Take(now, s, held)
}

// room reports whether there is room for another key. It visits a few and drops the first that nothing is kept of.
func (sh *shard) room(now int64) bool {
	if len(sh.keys) < keysPerShard {
		return true
	}
	tries := 0
	for hash, e := range sh.keys {
		if e.leases.Expires() <= now {
			delete(sh.keys, hash)
			return true
		}
		if tries++; tries == 16 {
			break
		}
	}
	return false
}

func (p *private) bring(_ context.Context, name id, e driver.Errand) (kept bool, _ error) {
	p.with(name, func(leases *window.Leases) { kept = leases.Bring(p.now(), &e) })
	return kept, nil
}

func (p *private) takeBack(_ context.Context, name id, began, keep int64) (units int64, _ error) {
	p.with(name, func(leases *window.Leases) { units = leases.Return(began, keep) })
	return units, nil
}

func (p *private) forget(_ context.Context, name id) error {
	p.with(name, (*window.Leases).Forget)
	return nil
}

func (p *private) with(name id, do func(*window.Leases)) {
	sh, hash := p.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.keys[hash]; e != nil && e.name == name {
		do(&e.leases)
	}
}
