package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// decides returns what answers requests for a decision by one way of the engine: 200, or 429 if it refuses one that charges.
func (h *Handler) decides(charges bool, silent *wire.Silence,
	by func(context.Context, *decide.Decider, *decide.Request) (wire.Decision, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, ok := h.read(w, r, charges)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
		defer cancel()
		decision, err := by(ctx, h.decider, &req)
		if err != nil {
			h.fail(w, r, err, silent)
			return
		}
		status := http.StatusOK
		if charges && !decision.Allowed {
			status = http.StatusTooManyRequests
			w.Header().Set("Retry-After", strconv.FormatInt(decision.RetryAfter.RoundUp(), 10))
		}
		wire.Write(w, status, decision)
	}
}

// settle answers POST /v1/settle. Used has to be there: without it a charge would be given back by mistake.
func (h *Handler) settle(w http.ResponseWriter, r *http.Request) {
	body := readAs[struct {
		Token string `json:"token"` // what POST /v1/reserve answered
		Used  *int64 `json:"used"`  // the units that the call used
	}](w, r, "token and used")
	switch {
	case body == nil:
	case body.Used == nil:
		wire.Fail(w, http.StatusBadRequest, "used is missing: send the units that the call used, or POST /v1/cancel to give all of it back")
	default:
		h.settleTo(w, r, body.Token, *body.Used)
	}
}

func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) {
	body := readAs[struct {
		Token string `json:"token"`
	}](w, r, "token")
	if body != nil {
		h.settleTo(w, r, body.Token, 0)
	}
}

// settleTo corrects the charge of a reservation to the units that were used.
func (h *Handler) settleTo(w http.ResponseWriter, r *http.Request, token string, used int64) {
	if token == "" || len(token) > wire.MaxToken {
		wire.Fail(w, http.StatusBadRequest, "the token is missing, or too long: send what POST /v1/reserve answered")
		return
	}
	err := h.opts.Tokens.Settle(r.Context(), h.decider, token, used, func(domain string) error {
		return h.opts.Access.Check(r.Context(), domain, access.Decide)
	})
	if err != nil {
		h.fail(w, r, err, &wire.Unsettled)
		return
	}
	wire.Write(w, http.StatusOK, map[string]bool{"settled": true})
}

// A request is the body of POST /v1/allow, /v1/peek and /v1/reserve.
type request struct {
	Domain  string  `json:"domain"`
	Entries []entry `json:"entries"`
	// Cost is the units asked for; without one it is the matching rule's, which is 1 by default.
	Cost *int64 `json:"cost"`
	// ID names the request, so that it can be repeated and is charged once. Nil is none. What charges nothing
	// ignores it.
	ID *string `json:"id"`
	// WaitUpTo is how many seconds the caller can wait. What charges nothing ignores it.
	WaitUpTo wire.Seconds `json:"wait_up_to"`
}

// An entry is one of a subject's. A value that is left out is empty, and that of all callers.
type entry struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// subject returns the subject of a request, or what is wrong with it. An empty value is most likely a variable that its
// program did not set, so that all callers without one would share a limit.
func (r *request) subject() (wire.Subject, error) {
	s := wire.Subject{Domain: r.Domain, Entries: make([]config.Entry, len(r.Entries))}
	for i, e := range r.Entries {
		s.Entries[i].Key = e.Key
		if e.Value == nil {
			continue
		}
		if s.Entries[i].Value = *e.Value; strings.TrimSpace(*e.Value) == "" {
			return s, fmt.Errorf("entry %d: the value of %q is empty or blank, and every caller without one would share a limit; "+
				"set it, or leave the value out to count all callers together", i+1, wire.Clip(e.Key))
		}
	}
	return s, s.Check()
}

// read reads a request, which may wait if it charges. It answers one that is wrong, or whose caller may not decide in its
// domain, and returns false.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, charges bool) (req decide.Request, ok bool) {
	body := readAs[request](w, r, "domain and entries")
	if body == nil {
		return req, false
	}
	subject, err := body.subject()
	if err != nil {
		wire.Fail(w, http.StatusBadRequest, err.Error())
		return req, false
	}
	req = decide.One(subject.Domain, subject.Entries, body.Cost)
	if body.ID != nil {
		if req.ID = *body.ID; req.ID == "" || len(req.ID) > decide.MaxIDLength {
			wire.Fail(w, http.StatusBadRequest, fmt.Sprintf("the id has %d bytes: it must have 1 to %d", len(req.ID), decide.MaxIDLength))
			return req, false
		}
	}
	if err := h.opts.Access.Check(r.Context(), req.Domain, access.Decide); err != nil {
		access.Fail(w, err)
		return req, false
	}
	if !charges {
		return req, true
	}
	req.Book = h.opts.Access.Caller(r.Context()).May(req.Domain, access.Book)
	if req.Within = time.Duration(body.WaitUpTo); req.Within < 0 || req.Within > h.opts.MaxWait {
		wire.Fail(w, http.StatusBadRequest, fmt.Sprintf("wait_up_to is %v; it can be 0 to %v seconds here (sash serve --max-wait)",
			req.Within.Seconds(), h.opts.MaxWait.Seconds()))
		return req, false
	}
	return req, true
}

// readAs reads the body of a POST; with says what is in it. It answers a request that is wrong, and returns nil.
func readAs[T any](w http.ResponseWriter, r *http.Request, with string) *T {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		wire.Fail(w, http.StatusMethodNotAllowed, "method "+r.Method+": POST a request here")
		return nil
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		wire.Fail(w, http.StatusUnsupportedMediaType, "the body must not be encoded; this one says "+wire.Clip(coding))
		return nil
	}
	given := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(cmp.Or(given, "application/json"))
	// A form is the type that curl -d gives to anything.
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") && kind != "application/x-www-form-urlencoded" {
		wire.Fail(w, http.StatusUnsupportedMediaType, "the body must be application/json; this one says "+wire.Clip(given))
		return nil
	}
	return wire.Read[T](w, r, with)
}
