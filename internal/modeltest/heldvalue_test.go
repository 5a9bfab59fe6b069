package modeltest

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

// heldLeases are what a Holder keeps of a key, and when the key expires.
type heldLeases struct {
	TTL time.Duration
	// Leases are in the order in which they were brought. Some may have ended.
	Leases []heldLease
	// Since is when the interval of the demand began. Now is the units asked for since then, and Past in the interval
	// before.
	Since     time.Time
	Now, Past int64
	// Began is when the errand that is under way began, and Until when another caller may go on one.
	Began, Until time.Time
	// Down is until when nobody goes on an errand.
	Down time.Time
	// Refused is until when the home refuses RefusedCost and more.
	Refused     time.Time
	RefusedCost int64
	// Rest is the units that the home had left when it was last heard of, or -1.
	Rest int64
}

// A heldLease is units that may be spent between two instants.
type heldLease struct {
	Began, Starts, Ends, Brought time.Time
	Left                         int64
	Note                         string
}

// The layout of the leases of a key, as the head of script/held_spend.lua has it.
const (
	heldVersion  = 1
	demandBytes  = 25
	heldHead     = 106
	leaseBytes   = 30
	processBytes = 12
)

var readHeld = redisstore.NewScript("read_held.lua", `
local call = redis.call
local clock = call('TIME')
return struct.pack('>i8', call('PTTL', KEYS[1])) .. (call('GET', KEYS[1]) or '')`)

// leasesOf returns the leases of a key, or nil if nothing is kept of it.
func leasesOf(scripts *scripter, key string) (*heldLeases, error) {
	reply, err := scripts.Run(context.Background(), readHeld, []string{"sash:held:" + key}, "")
	if err != nil {
		return nil, err
	}
	ttl, value := int64(binary.BigEndian.Uint64([]byte(reply))), fields(reply[8:])
	l := &heldLeases{TTL: time.Duration(ttl) * time.Millisecond, Rest: -1}
	switch {
	case ttl == -2:
		return nil, nil
	case len(value) != demandBytes && len(value) < heldHead || value[0] != heldVersion:
		return nil, errors.New("the value is not leases of this version")
	}
	rest := value[8:]
	l.Since, l.Now, l.Past = rest.instant(), rest.next(5), rest.next(5)
	if len(value) == demandBytes {
		return l, nil
	}
	left := rest
	rest = rest[5*driver.MaxLeases+processBytes:]
	l.Began, l.Until, l.Down = rest.instant(), rest.instant(), rest.instant()
	l.Refused, l.RefusedCost = rest.instant(), rest.next(5)
	rest.next(7)
	refusal := int(rest.next(2))
	l.Rest = rest.next(6) - 1
	for n := rest.next(1); n > 0; n-- {
		if len(rest) < leaseBytes {
			return nil, errors.New("the leases are cut off")
		}
		lease := heldLease{Left: left.next(5), Began: rest.instant(), Starts: rest.instant(), Ends: rest.instant(), Brought: rest.instant()}
		length := int(rest.next(2))
		lease.Note, rest = string(rest[:length]), rest[length:]
		l.Leases = append(l.Leases, lease)
	}
	if len(rest) != refusal {
		return nil, errors.New("the note of the refusal is not the end of the value")
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
