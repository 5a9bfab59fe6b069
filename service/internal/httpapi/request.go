package httpapi

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

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

// readCharge reads a request that charges, and so can wait.
func (h *Handler) readCharge(w http.ResponseWriter, r *http.Request) (req decide.Request, ok bool) {
	if req, ok = h.read(w, r); !ok {
		return req, false
	}
	if req.Within < 0 || req.Within > h.opts.MaxWait {
		wire.Fail(w, http.StatusBadRequest, fmt.Sprintf("wait_up_to is %v; it can be 0 to %v seconds here (sash serve --max-wait)",
			req.Within.Seconds(), h.opts.MaxWait.Seconds()))
		return req, false
	}
	return req, true
}

// read reads a request. It answers one that is wrong, or whose caller may not decide in its domain, and returns false.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (req decide.Request, ok bool) {
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
	req.Within = time.Duration(body.WaitUpTo)
	if err := h.opts.Access.Check(r.Context(), req.Domain, access.Decide); err != nil {
		access.Fail(w, err)
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
	if !checkContent(w, r.Header) {
		return nil
	}
	return wire.Read[T](w, r, with)
}

// checkContent reports whether a body may be JSON by its header, and answers the request when not. A body without a type
// is taken for JSON, and so is a form, which is the type that curl -d gives to anything.
func checkContent(w http.ResponseWriter, header http.Header) bool {
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		wire.Fail(w, http.StatusUnsupportedMediaType, "the body must not be encoded; this one says "+wire.Clip(coding))
		return false
	}
	given := header.Get("Content-Type")
	if given == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(given)
	if err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json") || kind == "application/x-www-form-urlencoded") {
		return true
	}
	wire.Fail(w, http.StatusUnsupportedMediaType, "the body must be application/json; this one says "+wire.Clip(given))
	return false
}
