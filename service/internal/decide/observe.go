package decide

import (
	"context"
	"errors"
	"time"

	"example.com/sash/service/internal/config"
)

// An Observer is called with every request after it was decided, by the goroutine that decided it: it must be quick
// and safe for concurrent use, and must not keep the observation or its answers.
type Observer func(context.Context, *Observation)

// An Observation is one request with its answers. Its methods classify them.
type Observation struct {
	Domain string
	// Port is where the request came.
	Port Port
	// Parts are those of the request.
	Parts []Part
	// Answers has one element a part. After an error they are what is known: rules, but perhaps no limits.
	Answers []Answer
	// Allowed says whether the request may go ahead; false after an error.
	Allowed bool
	// Unknown says that the configuration does not have the domain. A Lenient request is allowed then.
	Unknown bool
	// Err is why there is no decision; nil when there is one.
	Err error
	// Began is when the request came, and Took how long it took.
	Began time.Time
	Took  time.Duration
}

// Observe adds an observer. It must not be called when requests are being decided.
func (d *Decider) Observe(o Observer) { d.observers = append(d.observers, o) }

func (d *Decider) observe(ctx context.Context, req *Request, answers []Answer, err error, began time.Time) {
	if len(d.observers) == 0 {
		return
	}
	o := &Observation{Domain: req.Domain, Port: req.Port, Parts: req.Parts, Answers: answers, Allowed: err == nil, Err: err,
		Unknown: req.unknown || errors.Is(err, config.ErrUnknownDomain), Began: began, Took: time.Since(began)}
	for i := range answers {
		o.Allowed = o.Allowed && answers[i].Allowed()
	}
	for _, observer := range d.observers {
		observer(ctx, o)
	}
}
