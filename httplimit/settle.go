package httplimit

import (
	"context"
	"net/http"
	"time"

	"example.com/sash"
)

// settleTime is how long a release may take, also after the client has gone.
const settleTime = time.Second

// hold runs the handler and settles its reservations, also when it panics; the panic goes on.
func (g *gate) hold(w http.ResponseWriter, r *http.Request, claims []claim, held []*sash.Reservation, next http.Handler) {
	var rec *statusRecorder
	for _, c := range claims {
		if c.layer.Charge == Failures && rec == nil {
			rec = &statusRecorder{ResponseWriter: w}
			w = rec
		}
	}
	returned := false
	defer func() {
		outcome := Failed // also when the Outcome function panics; a slot is released all the same
		defer func() { g.settle(r, claims, held, outcome) }()
		if rec != nil {
			outcome = g.opts.Outcome(r, rec.final(returned, r.Context().Err()), w.Header())
		}
	}()
	next.ServeHTTP(w, r)
	returned = true
}

// settle releases the reservations that the outcome does not charge, all at once. It does so also when the
// client hangs up. The response waits for it no longer than for a decision; a slower release goes on in the
// background, for settleTime in all.
func (g *gate) settle(r *http.Request, claims []claim, held []*sash.Reservation, outcome Outcome) {
	detached := context.WithoutCancel(r.Context())
	released := make(chan error, len(claims))
	pending := 0
	for i, c := range claims {
		release := held[i].Release // not Settle, which leaves a mark in the store: it is never repeated
		switch {
		case c.layer.Charge == Requests, c.layer.Charge == Failures && outcome == Failed:
			continue
		case c.layer.ResetOnSuccess && outcome == Succeeded:
			release = func(ctx context.Context) error { return g.limiter.Reset(ctx, c.subject.Key) } // its own charge too
		}
		pending++
		go func() {
			ctx, cancel := context.WithTimeout(detached, settleTime)
			defer cancel()
			released <- release(ctx)
		}()
	}
	timeout := g.opts.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	for ; pending > 0; pending-- {
		select {
		case err := <-released:
			g.report(r, err)
		case <-late.C:
			go func() {
				for range pending {
					g.report(r, <-released)
				}
			}()
			return
		}
	}
}

// report passes the error of a release to OnError.
func (g *gate) report(r *http.Request, err error) {
	if err != nil {
		g.opts.OnError(r, err)
	}
}
