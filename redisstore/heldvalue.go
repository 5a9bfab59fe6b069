package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"example.com/sash/driver"
)

// Leases are what a Holder keeps of a key at one instant, for people who debug one subject.
type Leases struct {
	// Key is the name of the key on Redis.
	Key string
	// At is the server's clock.
	At time.Time
	// TTL is the time until the key expires. It is negative for a key without an expiry, which no script of the store
	// leaves behind.
	TTL time.Duration
	// Bytes is the memory of the key on the server; zero if the user may not run MEMORY USAGE.
	Bytes int64
	// Void says that another process of Redis wrote the leases, before a restart or a failover: they may be older than
	// what was spent, so nobody spends them.
	Void bool
	// Leases are in the order in which they were brought. Some may have ended.
	Leases []Lease
	// Since is when the interval of the demand began. Now is the units asked for since then, and Past in the interval
	// before.
	Since     time.Time
	Now, Past int64
	// Began is when the errand that is under way began, and Until when another caller may go on one. They are zero if none
	// is. If the home refused the last one, Began is zero, and until then callers who have units go on none.
	Began, Until time.Time
	// Down is until when nobody goes on an errand, because the last one failed.
	Down time.Time
	// Refused is until when the home refuses RefusedCost and more.
	Refused     time.Time
	RefusedCost int64
	// Rest is the units that the home had left when it was last heard of, or -1.
	Rest int64
}

// A Lease is units that the home charged in advance, and that may be spent between two instants.
type Lease struct {
	Began, Starts, Ends, Brought time.Time
	Left                         int64
	Note                         string // opaque
}

// The layout of the leases of a key, as the head of script/held_spend.lua has it.
const (
	heldVersion  = 1
	demandBytes  = 25
	heldHead     = 106
	leaseBytes   = 30
	processBytes = 12
	mostHeld     = heldHead + driver.MaxLeases*leaseBytes + (driver.MaxLeases+1)*driver.MaxNote
)

var errNoLeases = errors.New("redisstore: the value is not leases of this version")

// InspectLeases returns the leases of a key, or nil if nothing is kept of it. It only reads, in one step on the server, and
// needs the right to MEMORY USAGE for Bytes. A key of another type is an error.
func (s *Store) InspectLeases(ctx context.Context, key string) (*Leases, error) {
	name := s.heldKey(key)
	reply, err := s.send(ctx, inspect, []string{name}, fmt.Sprintf("held %d", mostHeld))
	if err != nil {
		return nil, err
	}
	leases, err := readLeases([]byte(reply))
	if err != nil {
		return nil, fmt.Errorf("%w: the key %.200s", err, name)
	}
	if leases != nil {
		leases.Key = name
	}
	return leases, nil
}

// readLeases reads the reply of inspect.lua. Its memory is bounded by the size of the reply.
func readLeases(reply []byte) (*Leases, error) {
	if len(reply) < inspectReply+processBytes {
		return nil, errReply
	}
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(reply[8*i:])) }
	at, ttl, bytes := number(0), number(1), number(2)
	value, process := reply[inspectReply:len(reply)-processBytes], reply[len(reply)-processBytes:]
	switch {
	case at < 0 || at >= 1<<53 || ttl < -2 || ttl >= 1<<53 || bytes < 0:
		return nil, errReply
	case ttl == -2:
		return nil, nil
	case len(value) < demandBytes || len(value) > demandBytes && len(value) < heldHead || value[0] != heldVersion:
		return nil, errNoLeases
	}
	l := &Leases{At: time.UnixMicro(at), TTL: time.Duration(-1), Bytes: bytes, Rest: -1}
	if ttl >= 0 {
		l.TTL = micros(ttl * 1000)
	}
	rest := fields(value[8:])
	l.Since, l.Now, l.Past = rest.instant(), rest.next(5), rest.next(5)
	if len(value) == demandBytes {
		return l, nil
	}
	left := rest
	rest = rest[5*driver.MaxLeases:]
	l.Void = string(rest[:processBytes]) != string(process)
	rest = rest[processBytes:]
	l.Began, l.Until, l.Down = rest.instant(), rest.instant(), rest.instant()
	l.Refused, l.RefusedCost = rest.instant(), rest.next(5)
	rest.next(7)
	refusal := int(rest.next(2))
	l.Rest = rest.next(6) - 1
	for n := rest.next(1); n > 0; n-- {
		if len(rest) < leaseBytes || len(l.Leases) == driver.MaxLeases {
			return nil, errNoLeases
		}
		lease := Lease{Left: left.next(5), Began: rest.instant(), Starts: rest.instant(), Ends: rest.instant(), Brought: rest.instant()}
		length := int(rest.next(2))
		if len(rest) < length {
			return nil, errNoLeases
		}
		lease.Note, rest = string(rest[:length]), rest[length:]
		l.Leases = append(l.Leases, lease)
	}
	if len(rest) != refusal {
		return nil, errNoLeases
	}
	return l, nil
}

// fields are numbers, the first byte of each the highest.
type fields []byte

// next returns a number of some bytes.
func (f *fields) next(size int) (n int64) {
	for _, digit := range (*f)[:size] {
		n = n<<8 | int64(digit)
	}
	*f = (*f)[size:]
	return n
}

// instant returns an instant, or the zero time for 0.
func (f *fields) instant() time.Time {
	if n := f.next(7); n != 0 {
		return time.UnixMicro(n)
	}
	return time.Time{}
}
