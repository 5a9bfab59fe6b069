package outgoing

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"example.com/sash"
)

// A holder holds the slot of one attempt. A nil holder holds none.
type holder struct {
	slot  *sash.Slot // nil when the store was unavailable
	taken time.Time
}

// withSlot sends a request once, like attempt, and holds a slot until the response's body has ended. It takes
// the slot before the decision, so that the request is sent as soon as it is charged.
func (t *Transport) withSlot(req *http.Request, call Call, patience time.Duration) (*http.Response, Call, pause, error) {
	if t.slots == nil {
		return t.attempt(req, call, patience)
	}
	began := time.Now()
	slot, err := t.slot(req, call, patience)
	if err != nil {
		closeBody(req)
		return nil, call, pause{}, err
	}
	call.holder = &holder{slot, time.Now()}
	if patience > 0 {
		patience = max(patience-time.Since(began), 1) // zero would not wait
	}
	passed := false
	defer func() {
		if !passed {
			call.holder.end() // also when the base panics
		}
	}()
	res, used, wanted, err := t.attempt(req, call, patience)
	if err == nil && res.Body != nil && res.Body != http.NoBody {
		res.Body, passed = holding(res.Body, call.holder), true
	}
	return res, used, wanted, err
}

// slot takes a slot, and waits for at most patience. It returns nil if the store is unavailable and the request is sent anyway.
func (t *Transport) slot(req *http.Request, call Call, patience time.Duration) (*sash.Slot, error) {
	key, ctx := call.slotKey(), req.Context()
	if patience == 0 {
		slot, err := t.slots.Start(ctx, key)
		if err == nil && !slot.Allowed() {
			by, _ := slot.Result().RefusedBy()
			err = &sash.LimitedError{Key: key, Limit: by.Limit, Result: slot.Result(), AtOnce: true}
		}
		return slot, t.tolerate(req, call, err)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, patience, ErrMaxWait)
	defer cancel()
	slot, err := t.slots.Wait(waiting, key)
	if limited := (*sash.LimitedError)(nil); errors.As(err, &limited) && ctx.Err() == nil {
		limited.Cause = ErrMaxWait
	}
	return slot, t.tolerate(req, call, err)
}

// begin restarts the hold time when a request is sent, if it has waited with its slot. If the slot has expired, it takes another.
func (t *Transport) begin(req *http.Request, call Call) (err error) {
	h := call.holder
	if h == nil || h.slot == nil || time.Since(h.taken) < time.Second {
		return nil
	}
	if held, err := h.slot.Extend(req.Context()); err == nil && !held {
		h.slot, err = t.slot(req, call, math.MaxInt64)
		return err
	}
	return nil
}

// end gives the slot back, and waits at most a second. If the store fails, the slot stays taken for its Window.
func (h *holder) end() {
	if h.slot != nil {
		_ = h.slot.Release(context.Background())
	}
}

// An endingBody calls end when the body has been read to its end, has failed or is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

func holding(body io.ReadCloser, h *holder) io.ReadCloser {
	held := endingBody{body, sync.OnceFunc(h.end)}
	if w, ok := body.(io.Writer); ok { // callers write to the body of a response that switches protocols
		return struct {
			io.ReadCloser
			io.Writer
		}{held, w}
	}
	return held
}

// Read implements io.Reader.
func (b endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
