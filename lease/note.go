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

// read reads the note of a policy with so many limits: what the home said, as it is a time later.
func read(note string, statuses []driver.Status, later int64) (at int64, refusals uint64, ok bool) {
	if len(note) != noteHead+noteStatus*len(statuses) {
		return 0, 0, false
	}
	for i := range statuses {
		from := noteHead + noteStatus*i
		statuses[i] = driver.Status{
			Remaining: number(note, from),
			Retry:     max(0, number(note, from+8)-later),
			Release:   max(0, number(note, from+16)-later),
			Reset:     max(0, number(note, from+24)-later),
		}
	}
	return number(note, 0), uint64(number(note, 8)), true
}

// spent sets the answer to a call that a lease has paid for. It reports whether the note could be read.
func spent(held *driver.Held, policy *driver.Policy, answer *driver.Answer) bool {
	var all [driver.MaxLimits]driver.Status
	statuses := all[:len(policy.Limits)]
	at, _, ok := read(held.Note, statuses, held.Noted)
	for i := range statuses {
		statuses[i].Remaining += held.Left
	}
	answer.Set(at, 0, statuses)
	answer.Source = driver.FromLease
	return ok
}

// refused sets the answer to a call that the home has refused, or for which it has booked a lease that starts later.
func refused(held *driver.Held, policy *driver.Policy, answer *driver.Answer) bool {
	var all [driver.MaxLimits]driver.Status
	statuses := all[:len(policy.Limits)]
	at, refusals, ok := read(held.Note, statuses, held.Noted)
	answer.Source = driver.FromCache
	at += held.Noted
	if refusals == 0 { // the limits that made the lease wait have the least left
		answer.Source = driver.FromLease
		at -= held.Noted + held.Refused
		least := int64(driver.MaxUnits)
		for i := range statuses {
			least = min(least, statuses[i].Remaining)
		}
		for i := range statuses {
			if statuses[i].Remaining == least {
				refusals |= 1 << i
			}
			statuses[i].Retry = 0
		}
	}
	for i := range statuses {
		if refusals&(1<<i) != 0 {
			statuses[i].Retry = max(statuses[i].Retry, held.Refused)
			if answer.Source == driver.FromLease {
				statuses[i].Remaining = 0
			}
		}
	}
	answer.Set(at, refusals, statuses)
	return ok
}
