package lease

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// An id names the leases of a key under one policy, in a holder: units that were leased under other limits are not spent. It is
// the same in all processes.
type id string

func identify(req *driver.Request) id {
	p := req.Policy
	const odd = 0xff51afd7ed558ccd // of MurmurHash3
	sum := (uint64(p.Algorithm)<<8 ^ uint64(len(p.Limits)) ^ uint64(p.Resolution)<<16 ^ odd) * odd
	for i := range p.Limits {
		sum = (sum ^ uint64(p.Limits[i].Units)) * odd
		sum = (sum>>32 ^ sum ^ uint64(p.Limits[i].Window)) * odd
	}
	var fingerprint [8]byte
	binary.LittleEndian.PutUint64(fingerprint[:], sum^sum>>32)
	name := append(make([]byte, 0, len(req.Key)+1+2*len(fingerprint)), req.Key...)
	return id(hex.AppendEncode(append(name, '#'), fingerprint[:]))
}

// A holder knows leases by key and policy.
type holder struct{ driver.Holder }

// spend has the home decide a call if there is no room for another key.
func (h holder) spend(ctx context.Context, name id, s driver.Spending) (held driver.Held, err error) {
	defer caught(&err)
	s.Key = string(name)
	if held, err = h.Spend(ctx, s); errors.Is(err, memstore.ErrFull) {
		return driver.Held{Alone: true}, nil
	}
	return held, err
}

func (h holder) bring(ctx context.Context, name id, e driver.Errand) (kept bool, err error) {
	defer caught(&err)
	e.Key = string(name)
	if kept, err = h.Bring(ctx, e); errors.Is(err, memstore.ErrFull) {
		return false, nil
	}
	return kept, err
}

func (h holder) takeBack(ctx context.Context, name id, began, keep int64) (_ int64, err error) {
	defer caught(&err)
	return h.Return(ctx, string(name), began, keep)
}

func (h holder) forget(ctx context.Context, name id) (err error) {
	defer caught(&err)
	return h.Forget(ctx, string(name))
}

const mostKeys = 1 << 14 // of New, whose demand is known; the home decides calls of other keys one by one

// newPrivate returns the holder of one process. Its clock does not jump.
func newPrivate() driver.Holder {
	start := time.Now()
	return memstore.New(&memstore.Options{MaxKeys: mostKeys, Now: func() time.Time { return start.Add(time.Since(start)) }})
}

// caught makes a panic of the holder an error: many of its callers are in the background.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("lease: the holder of the leases panicked: %v", r)
	}
}

// A note is the home's answer to an errand, or its refusal, as a holder keeps it: the instant, the refusals, and the status
// of each limit, eight bytes a number.
const (
	noteHead   = 2 * 8
	noteStatus = 4 * 8
)

// note writes an answer.
func note(a *driver.Answer) string {
	b := make([]byte, 0, noteHead+noteStatus*driver.MaxLimits)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.At))
	b = binary.LittleEndian.AppendUint64(b, a.Refusals)
	for _, s := range a.Statuses() {
		for _, number := range [...]int64{s.Remaining, s.Retry, s.Release, s.Reset} {
			b = binary.LittleEndian.AppendUint64(b, uint64(number))
		}
	}
	return string(b)
}

// number returns the number that begins at a byte of a note.
func number(note string, at int) int64 {
	return int64(binary.LittleEndian.Uint64([]byte(note[at : at+8])))
}

// reads sets the answer to a call that a lease has paid for, that the home has refused, or for which it has booked a lease
// that starts later, from the holder's note. It reports whether the note could be read.
func reads(held *driver.Held, policy *driver.Policy, answer *driver.Answer) bool {
	note := held.Note
	var all [driver.MaxLimits]driver.Status
	statuses := all[:len(policy.Limits)]
	if len(note) != noteHead+noteStatus*len(statuses) {
		return false
	}
	least := int64(driver.MaxUnits)
	for i := range statuses {
		from := noteHead + noteStatus*i
		statuses[i] = driver.Status{
			Remaining: number(note, from),
			Retry:     max(0, number(note, from+8)-held.Noted),
			Release:   max(0, number(note, from+16)-held.Noted),
			Reset:     max(0, number(note, from+24)-held.Noted),
		}
		least = min(least, statuses[i].Remaining)
	}
	at, refusals := number(note, 0), uint64(number(note, 8))
	source := driver.FromLease
	switch {
	case held.Spent:
		refusals = 0
		for i := range statuses {
			statuses[i].Remaining += held.Left
		}
	case refusals != 0:
		source = driver.FromCache
		at += held.Noted
		for i := range statuses {
			if refusals&(1<<i) != 0 {
				statuses[i].Retry = max(statuses[i].Retry, held.Refused)
			}
		}
	default: // the limits that made the lease wait have the least left
		at -= held.Refused
		for i := range statuses {
			if statuses[i].Retry = 0; statuses[i].Remaining == least {
				refusals |= 1 << i
				statuses[i].Remaining, statuses[i].Retry = 0, held.Refused
			}
		}
	}
	answer.Set(at, refusals, statuses)
	answer.Source = source
	return true
}
