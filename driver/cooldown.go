package driver

import (
	"context"
	"time"
)

// A Cooler keeps cool-downs: times in which all processes that share the store leave a key alone, such as an API
// that has refused a call.
type Cooler interface {
	// CoolDown begins a cool-down of the key that lasts c.Length from now on, unless there is one that ends
	// as late; comparing and beginning are one atomic step. It returns the cool-down that the key has then:
	// the zero CoolDown when there is none. A Length of zero begins nothing and only looks. The key has 1 to
	// MaxKeyLength bytes; its charges do not matter and stay as they are. After an error the cool-down may
	// have begun, and the call may be repeated.
	//
	// When the store's clock went back to before a cool-down began, it counts as begun now.
	CoolDown(ctx context.Context, key string, c CoolDown) (CoolDown, error)
}

// A CoolDown is a time in which a key is left alone. Lengths are in microseconds.
type CoolDown struct {
	// Length is how long it lasts: at most a day and an hour. Zero is no cool-down.
	Length int64
	// Left is the time until its end on the store's clock: at most Length, and negative after the end. It is
	// not used when a cool-down begins.
	Left int64
	// Guessed says that the Length is a guess. The store keeps it for its callers.
	Guessed bool
}

// Keep returns how long after its end a store keeps a cool-down: as long as it lasted, and 10 seconds at
// least. So a caller knows that the last one was too short.
func (c CoolDown) Keep() int64 { return max(c.Length, 10*time.Second.Microseconds()) }

var _ Cooler = Passthrough{}

// CoolDown implements [Cooler]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) CoolDown(ctx context.Context, key string, c CoolDown) (CoolDown, error) {
	if next, ok := p.Next.(Cooler); ok {
		return next.CoolDown(ctx, key, c)
	}
	return CoolDown{}, ErrUnsupported
}
