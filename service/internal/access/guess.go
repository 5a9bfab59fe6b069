package access

import (
	"context"
	"net/netip"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/middleware"
)

// MostGuesses is how many wrong tokens of an address are answered in any minute.
const MostGuesses = 10

// guessers bounds the addresses that are remembered at a time, in about 5 MB. When all of them have to wait, so do wrong
// tokens of any other address: a caller with more addresses gets no more guesses.
const guessers = 10_000

// Guesses counts wrong tokens by address. An IPv6 address counts as its /64, and all peers of a Unix socket count as one.
// It is safe for concurrent use. Make it with NewGuesses.
type Guesses struct {
	store   *memstore.Store
	limiter *sash.Limiter
}

// NewGuesses returns Guesses by a clock. Nil is the wall clock.
func NewGuesses(now func() time.Time) *Guesses {
	store := memstore.New(&memstore.Options{MaxKeys: guessers, Now: now})
	limiter, _ := sash.New(store, nil, sash.PerMinute(MostGuesses)) // the limit is right
	return &Guesses{store, limiter}
}

// Withhold returns how long callers from an address get no answer to any token, the right one too, because MostGuesses
// wrong ones came from there within a minute. Zero is not at all: then the caller may learn whether its token was right.
// From is the peer's address, as http.Request has it in RemoteAddr.
//
// Compare the token first: of guesses that arrive together no more are then answered than of guesses in sequence. Call
// it for tokens only. Nobody guesses the signature of a session, and one that expired is no guess.
func (g *Guesses) Withhold(from string, right bool) time.Duration {
	ctx, key := context.Background(), guesser(from) // a store in memory does not wait
	if !right {
		res, err := g.limiter.Allow(ctx, key)
		if err != nil { // every address that is remembered has to wait
			return time.Minute
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
