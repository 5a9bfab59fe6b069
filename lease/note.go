package lease

import (
	"encoding/binary"

	"example.com/sash/driver"
)

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
