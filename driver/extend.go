package driver

import "context"

// An Extender makes the charge of an admitted request count from now on: for a holder of a slot that needs it for longer, and
// for a caller whose booking could start earlier because units came back.
type Extender interface {
	// Extend moves the charge of a request to now in one step, so that no other call can take the room, and returns the
	// instant, which identifies the charge from then on. It is zero, and nothing has changed, if the charge has left its
	// longest window, was given back, or was removed by a reset. After a clock that went back a charge can be taken for
	// one that has left. The limits of the request do not matter: it was admitted.
	//
	// A booking, whose settlement has a Delay, is moved only if every limit of the request has room now without it, and no
	// other booking is delayed. Otherwise the instant is zero, too. From then on its settlement has no Delay.
	//
	// s is the settlement of the charge, without Units and ID. The error is [ErrUnsupported] under an algorithm other than SlidingLog and SlidingBuckets. After any other
	// error the charge may have been moved.
	Extend(ctx context.Context, s Settlement) (at int64, err error)
}

// Extends reports whether charges under an algorithm can be extended.
func (a Algorithm) Extends() bool { return a == SlidingLog || a == SlidingBuckets }

var _ Extender = Passthrough{}

// Extend implements [Extender]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Extend(ctx context.Context, s Settlement) (int64, error) {
	next, err := power[Extender](p, ErrUnsupported)
	if err != nil {
		return 0, err
	}
	return next.Extend(ctx, s)
}
