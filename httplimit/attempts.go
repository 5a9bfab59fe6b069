package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/sash"
)

// An Outcome is what came of a request.
type Outcome uint8

// The outcomes.
const (
	Neutral   Outcome = iota // nothing is charged and nothing forgotten
	Failed                   // one unit is charged in every layer
	Succeeded                // the layers with ResetOnSuccess forget the subject
)

// An OutcomeFunc tells the outcome of a request from its answer: the status and the header fields that
// the handler sent.
type OutcomeFunc func(r *http.Request, status int, header http.Header) Outcome

// ByStatus is an [OutcomeFunc] for APIs: a status of 2xx is Succeeded, 4xx but 429 is Failed, and the
// rest is Neutral. It is wrong for a login page that answers a bad password with 200 or a redirect.
func ByStatus(_ *http.Request, status int, _ http.Header) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Succeeded
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
		return Failed
	}
	return Neutral
}

// An AttemptLayer counts the failed attempts of one subject.
type AttemptLayer struct {
	// Name is as in [Layer].
	Name string
	// Limiter holds the failures to its limits.
	Limiter *sash.Limiter
	// Key says whose attempt it is.
	Key KeyFunc
	// ResetOnSuccess forgets the subject's failures when an attempt succeeds. Do not set it on a key
	// that an attacker shares with an account of his own, such as his address: he would log in to that
	// between the guesses at others. The store has to be a [sash.Resetter].
	ResetOnSuccess bool
}

// NewAttempts returns a middleware that charges a request for its outcome: failures count, successes do
// not. An attempt is refused with 429 when a layer has no room for one more failure. See the example of
// a login.
//
// The room is looked at before the handler runs and the failure is charged after it, so attempts that
// run at the same time could all be let in by the last free unit. Within one process they cannot: each
// attempt counts the others on its way. Over several processes, or after a restart, a subject can get in
// at most as many more as it has attempts on their way in the other processes. Two attempts at the last
// unit can refuse one that would have succeeded. The layers are looked at one after the other.
//
// A failure is charged even when the client has gone, and before it can read the answer, unless the
// handler flushes or the answer is larger than the server's buffer. A store that fails after the handler
// ran charges nothing; Options.OnError is told. A handler that panics is Neutral. Options.Cost must be
// nil: an attempt is one unit. The handler's http.ResponseWriter is wrapped; http.ResponseController
// reaches the features of the original one.
func NewAttempts(layers []AttemptLayer, outcome OutcomeFunc, opts *Options) (Middleware, error) {
	a := &attempts{layers: append([]AttemptLayer(nil), layers...), outcome: outcome}
	if opts != nil {
		a.opts = *opts
	}
	if err := a.opts.check(); err != nil {
		return nil, err
	}
	if outcome == nil {
		return nil, errors.New("httplimit: attempts need to know their outcome: give ByStatus or a function of yours")
	}
	if a.opts.Cost != nil {
		return nil, errors.New("httplimit: an attempt is one unit; Options.Cost must be nil")
	}
	plain := make([]Layer, len(layers))
	for i, l := range layers {
		if l.Limiter == nil {
			return nil, fmt.Errorf("httplimit: layer %d %q needs a limiter, from sash.New", i, l.Name)
		}
		plain[i] = Layer{Name: l.Name, Key: l.Key}
	}
	if err := checkLayers(plain); err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, next) })
	}, nil
}

type attempts struct {
	layers  []AttemptLayer
	outcome OutcomeFunc
	opts    Options
	flying  inFlight
}

// A suspect is one layer's subject of one attempt.
type suspect struct {
	layer *AttemptLayer
	key   string
	among int64 // attempts of this subject on their way, with this one
}

func (a *attempts) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if a.opts.early(w, r, next) {
		return
	}
	suspects, err := a.suspects(r)
	if err != nil {
		a.opts.fail(w, r, err, next)
		return
	}
	for i := range suspects {
		s := &suspects[i]
		s.among = a.flying.enter(s.layer, s.key)
		defer a.flying.leave(s.layer, s.key)
	}
	var quotas []quota
	var last sash.Result
	var retry time.Duration
	for _, s := range suspects {
		res, err := a.opts.ask(r, func(ctx context.Context) (sash.Result, error) {
			return s.layer.Limiter.Peek(ctx, s.key)
		})
		if err != nil {
			a.opts.fail(w, r, err, next)
			return
		}
		of := quotasOf(res, []sash.Subject{{Key: s.key}}, []string{s.layer.Name})
		for i, l := range res.Limits() {
			if l.Remaining >= s.among {
				continue
			}
			// Without room the next release makes some; with room that others on their way may take,
			// nobody knows when, but soon.
			of[i].refused, of[i].retry = true, time.Second
			if l.Remaining == 0 {
				of[i].retry = l.ReleaseAfter
			}
			retry = max(retry, of[i].retry)
		}
		quotas, last = append(quotas, of...), res
	}
	if retry > 0 {
		a.opts.refuse(w, r, last, retry, quotas)
		return
	}
	rec := &statusRecorder{ResponseWriter: w}
	a.opts.admit(rec, r, last, quotas, next)
	a.settle(r, suspects, a.outcome(r, rec.final(), w.Header()))
}

func (a *attempts) suspects(r *http.Request) (suspects []suspect, err error) {
	for i := range a.layers {
		l := &a.layers[i]
		key, err := layerKey(l.Name, l.Key, r)
		if errors.Is(err, ErrExempt) {
			continue
		}
		if err != nil {
			return nil, err
		}
		suspects = append(suspects, suspect{layer: l, key: key})
	}
	return suspects, nil
}

// settle charges or forgets after the handler ran. Who hangs up early is charged all the same.
func (a *attempts) settle(r *http.Request, suspects []suspect, outcome Outcome) {
	timeout := a.opts.Timeout
	if timeout < 0 {
		timeout = DefaultTimeout // nobody waits for it any more, so it must end
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
	defer cancel()
	for _, s := range suspects {
		var err error
		switch {
		case outcome == Failed:
			_, err = s.layer.Limiter.Allow(ctx, s.key)
		case outcome == Succeeded && s.layer.ResetOnSuccess:
			err = s.layer.Limiter.Reset(ctx, s.key)
		}
		if err != nil {
			a.opts.OnError(r, err)
		}
	}
}
