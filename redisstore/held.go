package redisstore

import (
	"context"
	"fmt"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

const orderBring, orderReturn = 1, 2 // the orders of held_bring.lua

// heldKey returns the name of the key with the leases of a subject, whatever its policy is: "sash:held:user:42".
func (s *Store) heldKey(key string) string { return s.prefix + "held:" + key }

// Spend implements [window.Holder], in one script on one key. It does not wait for replicas: a server that
// missed the write spends no lease, because scripts ignore leases that another process of Redis wrote.
func (s *Store) Spend(ctx context.Context, spending window.Spending) (window.Held, error) {
	reply, err := s.send(ctx, heldSpend, []string{s.heldKey(spending.Key)}, packSpending(&spending))
	if err != nil {
		return window.Held{}, err
	}
	return unpackHeld(reply)
}

// Bring implements [window.Holder].
func (s *Store) Bring(ctx context.Context, e window.Fetch) (kept bool, err error) {
	n, err := s.changeHeld(ctx, e.Key, packFetch(&e))
	return n > 0, err
}

// Return implements [window.Holder].
func (s *Store) Return(ctx context.Context, key string, began, keep int64) (units int64, err error) {
	arg := appendUint(nil, 1, orderReturn, 7, max(0, began), 5, min(max(0, keep), driver.MaxUnits))
	return s.changeHeld(ctx, key, string(arg))
}

// Forget implements [window.Holder].
func (s *Store) Forget(ctx context.Context, key string) error {
	_, err := s.send(ctx, reset, []string{s.heldKey(key)}, "")
	return err
}

func (s *Store) changeHeld(ctx context.Context, key, arg string) (int64, error) {
	reply, err := s.send(ctx, heldBring, []string{s.heldKey(key)}, arg)
	if err != nil {
		return 0, err
	}
	if len(reply) != 7 {
		return 0, fmt.Errorf("redisstore: a script returned %d bytes instead of 7", len(reply))
	}
	return bigEndian(reply), nil
}

func packSpending(s *window.Spending) string {
	var buf [20]byte
	again := int64(0)
	if s.Again {
		again = 1
	}
	return string(appendUint(buf[:0], 5, s.Cost, 7, s.Longest, 7, s.Way, 1, again))
}

// packFetch writes the argument of held_bring.lua for a fetch.
func packFetch(e *window.Fetch) string {
	b := appendUint(nil, 1, orderBring, 7, e.Longest, 7, e.Began, 5, e.Units, 7, e.Delay, 7, e.Refused, 5, e.RefusedCost,
		7, e.Failed, 6, e.Rest+1)
	return string(b) + e.Reply
}

// What held_spend.lua returns.
const (
	heldSpent   = 1
	heldRefused = 2
	heldDown    = 3
	heldAlone   = 4
	heldFetch   = 5
	heldWait    = 6
	heldReply   = 33 // bytes before the reply of the home
)

func unpackHeld(reply string) (window.Held, error) {
	if len(reply) < heldReply || len(reply) > heldReply+window.MaxReply {
		return window.Held{}, fmt.Errorf("redisstore: a script returned %d bytes instead of %d and the reply of the home", len(reply), heldReply)
	}
	field := func(from, size int) int64 { return bigEndian(reply[from : from+size]) }
	h := window.Held{At: field(0, 7), ReplyAge: field(15, 7), Fetch: field(22, 5), Reply: reply[heldReply:]}
	if h.Fetch > 0 {
		h.Rest = field(27, 6) - 1
	}
	number, says := field(8, 7), true
	switch field(7, 1) {
	case heldSpent:
		h.Spent, h.Left = true, number
	case heldRefused:
		h.Refused, says = number, number > 0
	case heldDown:
		h.Down, h.Wait, says = true, number, number > 0
	case heldAlone:
		h.Alone = true
	case heldFetch:
		says = h.Fetch > 0
	case heldWait:
		h.Wait, says = number, number > 0
	default:
		says = false
	}
	if !says || h.At>>53 != 0 || number>>53 != 0 || h.ReplyAge>>53 != 0 {
		return window.Held{}, fmt.Errorf(
			"redisstore: a script returned %q, which is no answer; did another program write this key? %w",
			reply[:heldReply], driver.ErrRejected)
	}
	return h, nil
}
