package decide

import (
	"context"
	"time"
)

// An Observer is told of every request after it was decided, by the goroutine that decided it: it must be quick
// and safe for concurrent use, and must not keep the observation or its answers.
type Observer func(context.Context, *Observation)

// An Observation is what became of one request.
type Observation struct {
	Domain string
	// Parts is what was asked.
	Parts []Part
	// Answers has one element a part. After an error they are what is known: rules, but perhaps no limits.
	Answers []Answer
	// Allowed says whether the request may go ahead; false after an error.
	Allowed bool
	// Err is why there is no decision; nil when there is one.
	Err error
	// Began is when the request came, and Took how long it took.
	Began time.Time
	Took  time.Duration
}

// Observe adds an observer. It must not be called when requests are being decided.
func (d *Decider) Observe(o Observer) { d.observers = append(d.observers, o) }

func (d *Decider) observe(ctx context.Context, o Observation) {
	o.Took = time.Since(o.Began)
	for _, observer := range d.observers {
		observer(ctx, &o)
	}
}

// allowed reports whether no part that binds was refused.
func allowed(answers []Answer) bool {
	for i := range answers {
		if answers[i].Refused && !answers[i].Soft() {
			return false
		}
	}
	return true
}
