package driver

import "context"

// A Swapper keeps short texts about which all who share the store agree.
type Swapper interface {
	// Swap replaces the text of a key if that is still s.Old; comparing and replacing are one atomic step. It returns the
	// text that the key has then: s.New if it was replaced, now or by the same call before. A key without a text has an
	// empty one. If New is Old, nothing is written. The key has 1 to MaxKeyLength bytes; its charges do not matter. After an
	// error the text may have been replaced, and the call may be repeated.
	Swap(ctx context.Context, key string, s Swap) (Swapped, error)
}

// MaxText is the most bytes of a text.
const MaxText = 8192

// A Swap is a text for another.
type Swap struct {
	// Old is the text that is replaced, and New the one in its place: not empty, unless both are.
	Old, New string
	// Lasts is how long New is kept, in microseconds: at most three times MaxAhead.
	Lasts int64
}

// A Swapped is the text of a key.
type Swapped struct {
	// At is the store's clock, in microseconds.
	At int64
	// Process names the server process that answered. A store that has been restarted, or a replica in its place, has
	// another one, and may have lost something.
	Process string
	Text    string
}

var _ Swapper = Passthrough{}

// Swap implements [Swapper]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Swap(ctx context.Context, key string, s Swap) (Swapped, error) {
	next, err := power[Swapper](p, ErrUnsupported)
	if err != nil {
		return Swapped{}, err
	}
	return next.Swap(ctx, key, s)
}
