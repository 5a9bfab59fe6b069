package httplimit

import (
	"context"
	"net/http"
	"time"

	"example.com/sash"
)

// settleTime is how long giving back may take, whatever became of the client.
const settleTime = time.Second

// hold runs the handler and settles what was reserved for it, also when it panics; the panic goes on.
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
		outcome := Failed // what an Outcome function that panics leaves; a slot is given back all the same
		defer func() { g.settle(r, claims, held, outcome) }()
		if rec != nil {
			outcome = g.opts.Outcome(r, rec.final(returned, r.Context().Err()), w.Header())
		}
	}()
	next.ServeHTTP(w, r)
	returned = true
}

// settle gives back what the request is not to be charged, all at once. Who hangs up early changes nothing.
// The client's answer waits for it no longer than for a decision; what takes longer goes on by itself, for
// settleTime in all.
func (g *gate) settle(r *http.Request, claims []claim, held []*sash.Reservation, outcome Outcome) {
	detached := context.WithoutCancel(r.Context())
	told := make(chan error, len(claims))
	pending := 0
	for i, c := range claims {
		back := held[i].Release // once and without a mark in the store: nobody is there to repeat it
		switch {
		case c.layer.Charge == Requests, c.layer.Charge == Failures && outcome == Failed:
			continue
		case c.layer.ResetOnSuccess && outcome == Succeeded:
			back = func(ctx context.Context) error { return g.limiter.Reset(ctx, c.subject.Key) } // its own charge too
		}
		pending++
		go func() {
			ctx, cancel := context.WithTimeout(detached, settleTime)
			defer cancel()
			told <- back(ctx)
		}()
	}
	timeout := g.opts.Timeout
	if timeout < 0 {
		timeout = DefaultTimeout
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	for ; pending > 0; pending-- {
		select {
		case err := <-told:
			g.failed(r, err)
		case <-late.C:
			go func() {
				for range pending {
					g.failed(r, <-told)
				}
			}()
			return
		}
	}
}

// failed tells of what could not be given back.
func (g *gate) failed(r *http.Request, err error) {
	if err != nil {
		g.opts.OnError(r, err)
	}
}
