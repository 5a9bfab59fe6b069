package driver

import "context"

// A Line is the callers of one process who wait for slots of a subject, in order.
type Line struct {
	// Name names the line among those of all processes. It is not zero.
	Name uint64
	// Back is the instant of an earlier charge of the same request that is given back first: [Answer.At] of the answer that
	// admitted it. Zero if there is none. A charge that is gone is none.
	Back int64
	// Most is how often the store admits others past the line whose turn it is: at least 1.
	Most int64
	// Stays is how long the line keeps its place in the rota without asking again, in microseconds: 1 to MaxStay.
	Stays int64
	// More says that others stand in the line behind the caller for whom it asks.
	More bool
}

const (
	// MaxStay is the longest time for which a line keeps its place without asking: ten seconds, in microseconds.
	MaxStay = 10_000_000
	// MaxLines is the most lines in a rota. Further ones get slots, but no turn.
	MaxLines = 64
)

// A Hander hands slots over, and keeps the order of the lines that wait for them: the rota of a subject and the units of a
// limit. A line of a limit of fewer units could keep a slot that it must not take from one of more.
type Hander interface {
	Store
	// Hand gives a charge back and decides a request, in one step, so that a slot goes from one caller to the next. The
	// policy has one limit, which is not of the calendar, an exact algorithm, no CountRefused and no Block. The cost is 1.
	//
	// The first line of the rota is the one whose turn it is. A request of another line is refused, whether or not there is
	// room, when others have been admitted past the first Most times since it became the first; then its retry time is
	// Stays. A line that is refused is in the rota until Stays has passed: at its place, or at the end if it was not in it.
	// One that is admitted keeps its place for as long if More callers wait, and goes to the end if it was the first.
	// Otherwise it leaves the rota, or stays out of it.
	//
	// Requests that are decided otherwise take no turn. The rota is a hint: a store may lose it at any time.
	Hand(ctx context.Context, req Request, line Line) (Answer, error)
}

var _ Hander = Passthrough{}

// Hand implements [Hander]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Hand(ctx context.Context, req Request, line Line) (Answer, error) {
	next, err := power[Hander](p, ErrUnsupported)
	if err != nil {
		return Answer{}, err
	}
	return next.Hand(ctx, req, line)
}
