package lease

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
	"example.com/sash/memstore"
)

// An id names the leases of a key under one policy in a holder, so that a call spends no units that were leased under other limits.
// All processes compute the same id.
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

type holder struct{ window.Holder }

// spend has the home decide a call if there is no room for another key.
func (h holder) spend(ctx context.Context, name id, s window.Spending) (held window.Held, err error) {
	defer caught(&err)
	s.Key = string(name)
	if held, err = h.Spend(ctx, s); errors.Is(err, memstore.ErrFull) {
		return window.Held{Alone: true}, nil
	}
	return held, err
}

func (h holder) bring(ctx context.Context, name id, e window.Fetch) (kept bool, err error) {
	defer caught(&err)
	e.Key = string(name)
	if kept, err = h.Bring(ctx, e); errors.Is(err, memstore.ErrFull) {
		return false, nil
	}
	return kept, err
}

func (h holder) takeBack(ctx context.Context, name id, began int64) (_ int64, err error) {
	defer caught(&err)
	return h.Return(ctx, string(name), began, 0)
}

func (h holder) forget(ctx context.Context, name id) (err error) {
	defer caught(&err)
	return h.Forget(ctx, string(name))
}

const mostBytes = 8 << 20 // of New's holder: it knows the demand of some 10,000 keys, and the home decides each call of other keys

// newPrivate returns the holder of one process. Its clock does not jump.
func newPrivate() window.Holder {
	start := time.Now()
	return memstore.New(&memstore.Options{MaxBytes: mostBytes, Now: func() time.Time { return start.Add(time.Since(start)) }})
}

// caught turns a panic of the home or the holder into an error, because many of their callers run in the background.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", errPanic, r)
	}
}

// A reply is the home's answer to a fetch in the form that a holder keeps: the instant, the refusals and each limit's status, as numbers.
const replyHead, replyStatus = 2 * 8, 4 * 8 // bytes

// encode writes an answer as a reply.
func encode(a *driver.Answer) string {
	numbers := []int64{a.At, int64(a.Refusals)}
	for _, s := range a.Statuses() {
		numbers = append(numbers, s.Remaining, s.Retry, s.Release, s.Reset)
	}
	b, _ := binary.Append(nil, binary.LittleEndian, numbers)
	return string(b)
}

func number(reply string, at int) int64 {
	return int64(binary.LittleEndian.Uint64([]byte(reply[at : at+8])))
}

// reads sets the answer to a call from the holder's reply, and reports whether the reply could be read. A lease has paid for
// the call, the home has refused it, or the home has booked a lease that starts later.
func reads(held *window.Held, policy *driver.Policy, answer *driver.Answer) bool {
	reply := held.Reply
	var all [driver.MaxLimits]driver.Status
	statuses := all[:len(policy.Limits)]
	if len(reply) != replyHead+replyStatus*len(statuses) {
		return false
	}
	least := int64(driver.MaxUnits)
	for i := range statuses {
		from := replyHead + replyStatus*i
		statuses[i] = driver.Status{
			Remaining: number(reply, from),
			Retry:     max(0, number(reply, from+8)-held.ReplyAge),
			Release:   max(0, number(reply, from+16)-held.ReplyAge),
			Reset:     max(0, number(reply, from+24)-held.ReplyAge),
		}
		least = min(least, statuses[i].Remaining)
	}
	at, refusals := number(reply, 0), uint64(number(reply, 8))
	source := driver.FromLease
	switch {
	case held.Spent:
		refusals = 0
		for i := range statuses {
			statuses[i].Remaining += held.Left
		}
	case refusals != 0:
		source = driver.FromCache
		at += held.ReplyAge
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

type lease struct {
	fetchName
	fetched time.Time // when its fetch began, by this process's clock
	grant   driver.Settlement
	timer   *time.Timer
}

func (s *Store) keep(l *lease) {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	s.work.leases[l.fetchName] = l
	ends := l.fetched.Add(time.Duration(l.grant.Delay)*time.Microsecond + s.longest)
	l.timer = time.AfterFunc(time.Until(ends), func() { s.over(l) })
}

func (s *Store) over(l *lease) {
	done := make(chan struct{})
	s.work.mu.Lock()
	held := s.work.leases[l.fetchName] == l
	if held {
		delete(s.work.leases, l.fetchName)
		s.work.doing[done] = struct{}{}
	}
	s.work.mu.Unlock()
	if !held {
		return
	}
	defer s.work.end(done, func() {})
	ctx, cancel := context.WithTimeout(context.Background(), s.returnWithin())
	defer cancel()
	_ = s.giveBack(ctx, l)
}

// giveBack takes the rest out of a lease and gives it back to the home. If that fails, the units stay charged until they leave the window.
func (s *Store) giveBack(ctx context.Context, l *lease) error {
	units, err := s.holder.takeBack(ctx, l.name, l.began)
	if err != nil || units == 0 {
		return err
	}
	return s.settle(ctx, l.grant, units)
}

func (s *Store) settle(ctx context.Context, set driver.Settlement, units int64) (err error) {
	defer caught(&err)
	set.Units = max(0, set.Cost-units)
	set.Policy = s.lengthened(set.Policy)
	return s.Store.Do(ctx, &driver.Batch{Ops: []driver.Op{{Kind: driver.Settle, Settlement: set}}})
}

func (s *Store) returnWithin() time.Duration { return max(s.home.within, usualWithin) }

// Release gives back the rest of every lease that this process has fetched or is fetching. Call it when the process shuts down. Later calls
// get new leases. The error says how many leases were not given back; their units stay charged until they leave the window.
func (s *Store) Release(ctx context.Context) error {
	failed, why := s.release(ctx)
	left := s.work.ended(ctx)
	more, last := s.release(ctx)
	if failed += more; failed+left == 0 {
		return nil
	}
	return fmt.Errorf("lease: %d leases could not be given back, and %d fetches are under way: %w", failed, left, cmp.Or(ctx.Err(), why, last))
}

// release gives back the leases that this process has now. It returns how many it could not give back, and one of the reasons.
func (s *Store) release(ctx context.Context) (failed int, why error) {
	s.work.mu.Lock()
	all := s.work.leases
	s.work.leases = make(map[fetchName]*lease)
	s.work.mu.Unlock()
	var mu sync.Mutex // guards the results
	var together sync.WaitGroup
	for _, l := range all {
		l.timer.Stop()
		together.Go(func() {
			if err := s.giveBack(ctx, l); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed, why = failed+1, err
			}
		})
	}
	together.Wait()
	return failed, why
}
