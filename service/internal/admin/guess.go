package admin

import (
	"context"
	"net/netip"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/middleware"
)

const (
	// mostGuesses is how many wrong tokens from an address are answered in any minute.
	mostGuesses = 10

	// guessers bounds the addresses that wait at a time, in about 5 MB. Beyond that no further address is counted: its
	// wrong tokens are answered as wrong, and its right ones work. If those waited too, a caller with a network of IPv6
	// could lock out all operators; if only the wrong ones waited, the answer would show which token is right.
	guessers = 10_000
)

// Guesses counts wrong tokens by address. An IPv6 address counts as its /64, and all peers of a Unix socket count as one.
// It is safe for concurrent use. Make it with newGuesses.
type guesses struct{ limiter *sash.Limiter }

// newGuesses returns guesses by a clock. Nil is the wall clock.
func newGuesses(now func() time.Time) *guesses {
	store := memstore.New(&memstore.Options{MaxKeys: guessers, Now: now})
	limiter, _ := sash.New(store, nil, sash.PerMinute(mostGuesses)) // the limit is valid
	return &guesses{limiter}
}

// withhold returns how long callers from an address get no answer to any token, the right one too, because mostGuesses
// wrong ones came from there within a minute. At zero the caller may learn whether its token was right. From is the
// peer's address, as http.Request has it in RemoteAddr.
//
// Compare the token first, so that guesses that arrive together get no more answers than guesses in sequence. Do not
// call it for the cookie of a session: nobody guesses a random ID, and the ID of an expired session is no guess.
func (g *guesses) withhold(from string, right bool) time.Duration {
	ctx, key := context.Background(), guesser(from) // a store in memory does not wait
	if !right {
		res, err := g.limiter.Allow(ctx, key)
		if err != nil { // guessers other addresses wait
			return 0
		}
		return res.RetryAfter
	}
	res, err := g.limiter.Peek(ctx, key)
	if err != nil || res.Remaining > 0 {
		return 0
	}
	return res.Limits()[0].ReleaseAfter
}

// guesser returns the key of a peer's address.
func guesser(from string) string {
	peer, err := netip.ParseAddrPort(from)
	if err != nil {
		return "socket"
	}
	return middleware.AddressKey(peer.Addr().WithZone("").Unmap(), middleware.DefaultIPv6Bits)
}
