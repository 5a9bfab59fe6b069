// Package redisstore keeps charges on Redis (6.2 and later) or Valkey, where any number of processes share them. Every decision is one
// Lua script on one key: atomic, on the server's own clock, in one round trip. A client only has to run a script: see [Scripter], and the
// modules goredisstore and rueidisstore for the two common clients. Every key has an expiry.
package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// DefaultPrefix is the prefix of every key unless Options give another.
const DefaultPrefix = "sash:"

// A Scripter runs a script on the server that owns its keys. Implementations are safe for concurrent use.
type Scripter interface {
	// Run runs a script and returns its reply, a bulk string. It sends EVALSHA, and then EVAL if, and only if, the server replies
	// NOSCRIPT. It never repeats a script that may have run, whatever else happens: a repeated script charges twice.
	Run(ctx context.Context, script *Script, keys []string, arg string) (string, error)
	// Cluster reports whether the keys of one script must be in one slot.
	Cluster() bool
}

// Options for a Store. The zero value is the default.
type Options struct {
	// Prefix is added before every key, to keep applications on one server apart. Empty is DefaultPrefix.
	Prefix string
	// Replicas is how many replicas have to confirm an admission. If fewer confirm in time, the error is sash.ErrUnavailable and the call
	// is charged. Refusals, peeks and settlements do not wait. Zero is none. Replicas needs a Scripter that is a [Waiter]. Each call then
	// takes a connection of its own and one more round trip.
	Replicas int
	// ReplicaTimeout is how long to wait for Replicas, rounded up to whole milliseconds. Keep it below the client's read timeout and the
	// time for a call, such as a failover store's Budget. Zero is DefaultReplicaTimeout.
	ReplicaTimeout time.Duration
}

// A Store decides on Redis. It is safe for concurrent use, and never configures or closes its client. It has every power of a
// [driver.Store], and keeps leases: see package lease. An error about the value of a key is [driver.ErrRejected].
type Store struct {
	scripts Scripter
	prefix  string
	wait    Wait
	trips   trips
	apart   atomic.Bool // a cluster has rejected keys of several slots; set once
}

var (
	_ window.Holder  = (*Store)(nil)
	_ driver.Witness = (*Store)(nil)
)

// New returns a store over a client. A nil opts is the default. New does no I/O. It panics if scripts is nil.
func New(scripts Scripter, opts *Options) *Store {
	if driver.Nil(scripts) {
		panic("redisstore: New needs a Scripter; the modules goredisstore and rueidisstore make one of a client")
	}
	opts = cmp.Or(opts, &Options{})
	return &Store{scripts: scripts, prefix: cmp.Or(opts.Prefix, DefaultPrefix), wait: opts.wait()}
}

// Key returns the name of the Redis key with a subject's charges under a policy's algorithm and resolution:
// "sash:log3:user:42", "sash:buckets3-1s:user:42". A release that stores charges in another form uses other names.
func (s *Store) Key(key string, policy *driver.Policy) string {
	tag := tags[policy.Algorithm]
	if policy.Algorithm == driver.SlidingBuckets {
		return s.prefix + tag + "-" + policy.Resolution.String() + ":" + key
	}
	return s.prefix + tag + ":" + key
}

// Slot returns the slot of the key in a Redis Cluster, from 0 to 16383.
func (s *Store) Slot(key string, policy *driver.Policy) int { return int(slot(s.Key(key, policy))) }

// The name of a key carries the form of its value. A change of what a script stores gives the form another number. So
// instances of both builds decide on keys of their own, where otherwise each would reject the keys of the other.
const (
	logForm     = "3" // of log.lua
	setForm     = "2" // of zset.lua
	windowsForm = "2" // of windows.lua
)

// tags keep apart the algorithms, which have different types on Redis, and the forms of their values.
var tags = [...]string{
	driver.SlidingLog:     "log" + logForm,
	driver.SortedSetLog:   "zset" + setForm,
	driver.SlidingBuckets: "buckets" + logForm,
	driver.SlidingCounter: "counter" + windowsForm,
	driver.FixedWindow:    "fixed" + windowsForm,
	driver.GCRA:           "gcra" + windowsForm,
}

// Powers implements [driver.Store].
func (s *Store) Powers() driver.Powers {
	return driver.CanAll | driver.CanAny | driver.CanEach | driver.CanID | driver.CanBook | driver.CanBlock | driver.CanTake |
		driver.CanSettle | driver.CanExtend | driver.CanForget | driver.CanCool
}

// Do implements [driver.Store]. On a cluster the error of several operations is [driver.ErrApart] for keys of different slots.
//
// A compact log remembers about 10,000 IDs of calls and settlements, 16 to 40 bytes each; other algorithms remember about 600 a key.
// Beyond that the ID that ends first is forgotten: a repeated call then counts as new, and a settlement gives no units back.
func (s *Store) Do(ctx context.Context, b *driver.Batch) error {
	switch {
	case len(b.Ops) == 1:
		b.Chosen = 0
	case b.Mode == driver.Any:
		return s.any(ctx, b)
	case b.Mode == driver.Each:
		return s.each(ctx, b.Ops)
	case b.Ops[0].Kind != driver.Charge && b.Ops[0].Kind != driver.Extend:
		return driver.ErrUnsupported
	}
	return s.together(ctx, b.Ops)
}

// together carries out operations of one kind in one step: several charges or extensions, or one of any kind.
func (s *Store) together(ctx context.Context, ops []driver.Op) error {
	op := &ops[0]
	switch op.Kind {
	case driver.Settle:
		return s.settle(ctx, ops)
	case driver.Extend:
		return s.extend(ctx, ops)
	case driver.GiveBack:
		return s.giveBack(ctx, op)
	case driver.Forget:
		return s.forget(ctx, s.Key(op.Key, op.Policy))
	case driver.Cool:
		return s.cool(ctx, op)
	case driver.Charge:
		of := &sets[op.Policy.Algorithm]
		switch {
		case op.ID != "":
			name := window.CallName(op.ID)
			return s.decide(ctx, ops, of.once, string(name[:]))
		case op.Forced:
			return s.decide(ctx, ops, of.take, takeForced)
		case op.Partial:
			return s.decide(ctx, ops, of.take, takeFitting)
		case bookable(ops) > 0:
			return s.decide(ctx, ops, logBook, "")
		}
		return s.decide(ctx, ops, of.decide, "")
	}
	return driver.ErrUnsupported
}

// keys returns the names of the keys of operations. The error is [driver.ErrApart] if they are in several slots of a cluster.
func (s *Store) keys(ops []driver.Op) ([]string, error) {
	keys := make([]string, len(ops))
	for i := range ops {
		keys[i] = s.Key(ops[i].Key, ops[i].Policy)
	}
	if len(keys) > 1 && s.scripts.Cluster() && slices.ContainsFunc(keys, func(key string) bool { return slot(key) != slot(keys[0]) }) {
		return nil, driver.ErrApart
	}
	return keys, nil
}

// decide runs one script over all operations, and sets their answers. It sends tail behind them: nothing, the ID of a single
// operation, or an order of take.lua.
func (s *Store) decide(ctx context.Context, ops []driver.Op, script *Script, tail string) error {
	policy := ops[0].Policy
	keys, err := s.keys(ops)
	if err != nil {
		return err
	}
	books, after := script == logBook || script == logOnce, tail
	if policy.Block.Refusals > 0 && blocking[script] != nil {
		script, after = blocking[script], tail+packBlock(&policy.Block)
		for _, own := range keys {
			keys = append(keys, s.blockKey(own))
		}
	}
	// The store sends calendar limits as boundaries around this process's clock. If the server's clock or the instant of a booking lies
	// outside, the script decides nothing and replies with that time. The store then sends boundaries around it; no booking is earlier.
	now, from := calendarNow(ops), int64(0)
	for range mostTries {
		arg := pack(ops, policy.CountRefused, now)
		if books {
			arg += packBooking(bookable(ops), from)
		}
		reply, err := s.run(ctx, ops, script, keys, arg+after)
		if err != nil {
			return err
		}
		var lefts string
		if len(after) > len(tail) {
			reply, lefts = cutLefts(reply, len(ops))
		}
		if len(tail) == 1 {
			reply = unpackCharged(reply, &ops[0].Answer)
		}
		waits := len(reply) >= 8 && int64(number(reply)) > 0 && number(reply)&onlyWaits != 0
		decided, at, err := unpack(ops, reply)
		if err == nil && decided && waits {
			err = s.lookNow(ctx, ops)
		}
		if err != nil || decided {
			return errors.Join(err, bar(ops, lefts))
		}
		now = at
		if len(reply) >= 24 {
			from = int64(number(reply[16:]))
		}
	}
	return errUnsteady
}

// lookNow sets the answers of refused operations to what a look finds now. Their retry times stay.
func (s *Store) lookNow(ctx context.Context, ops []driver.Op) error {
	looks := slices.Clone(ops)
	for i := range looks {
		looks[i].Cost = 0
	}
	if err := s.decide(ctx, looks, log, ""); err != nil {
		return err
	}
	for i := range ops {
		answer, statuses := &ops[i].Answer, slices.Clone(looks[i].Answer.Statuses())
		for j, s := range answer.Statuses() {
			statuses[j].Retry = s.Retry
		}
		answer.Set(answer.At, answer.Refusals, statuses)
	}
	return nil
}

// mostTries is how often the store sends a decision to get its calendar boundaries right. They may have to surround the server's
// clock, then the last booking, then the instant at which the call has room behind it, which others may take meanwhile.
const mostTries = 5

// errUnsteady is about one call: the server answered each time.
var errUnsteady = fmt.Errorf("redisstore: the server's clock, or the queue of bookings, moved in each of %d tries to decide under a calendar limit; repeat the call: %w",
	mostTries, driver.ErrRejected)

// Bits of the refusals in a reply.
const (
	unsettled = 1 << 40 // a charge may still be settled
	repeated  = 1 << 41 // the call was charged before, perhaps under other limits
	onlyWaits = 1 << 42 // all but the retry times is as of an instant ahead
)

// unpack reads a script's reply into the answers of operations. If the calendar boundaries did not surround the
// server's time, decided is false and at is that time. After an error the answers are invalid.
func unpack(ops []driver.Op, reply string) (decided bool, at int64, err error) {
	if len(reply) >= 16 && int64(number(reply)) == -1 {
		return false, int64(number(reply[8:])), nil
	}
	limits := 0
	for i := range ops {
		limits += len(ops[i].Policy.Limits)
	}
	delay := int64(0)
	if n := 16 + 32*limits; len(reply) == n+8 { // the call may have been booked
		if delay = int64(number(reply[n:])); delay < 0 || delay > driver.MaxAhead {
			return false, 0, fmt.Errorf("redisstore: a script returned a booking for %d µs ahead", delay)
		}
		reply = reply[:n]
	}
	if len(reply) != 16+32*limits {
		return false, 0, fmt.Errorf("redisstore: a script returned %d bytes instead of %d", len(reply), 16+32*limits)
	}
	var bits uint64 // of all numbers
	next := func() int64 {
		n := number(reply)
		bits |= n
		reply = reply[8:]
		return int64(n)
	}
	refusals, at := uint64(next()), next()
	again := refusals&repeated != 0
	// Only the log knows whether a charge may still be settled.
	firm := refusals&unsettled == 0 && !again && compact(ops[0].Policy.Algorithm)
	refusals &^= unsettled | repeated | onlyWaits
	unknown := refusals >> limits
	var room [driver.MaxLimits]driver.Status
	for i := range ops {
		k, answer := len(ops[i].Policy.Limits), &ops[i].Answer
		for j := range k {
			room[j] = driver.Status{Remaining: next(), Retry: next(), Release: next(), Reset: next()}
		}
		refused := refusals & (1<<k - 1)
		if again {
			refused, unknown = window.Again(refusals, room[:k]), 0
		}
		answer.Set(at, refused, room[:k])
		answer.Firm = firm && !answer.Allowed()
		if answer.Allowed() {
			answer.Delay = delay
		}
		refusals >>= k
	}
	if unknown != 0 || bits>>53 != 0 { // Lua counts to 2^53, so no time overflows
		return false, 0, fmt.Errorf("redisstore: a script returned invalid numbers; did another program write this key? %w", driver.ErrRejected)
	}
	return true, at, nil
}

// unpackCharged reads the units at the end of a reply into an answer, and returns the reply without them.
func unpackCharged(reply string, answer *driver.Answer) string {
	if len(reply) <= 24 { // without a decision
		return reply
	}
	end := len(reply) - 8
	answer.Charged = int64(number(reply[end:]))
	return reply[:end]
}

func number(reply string) uint64 { return binary.BigEndian.Uint64([]byte(reply[:8])) }
