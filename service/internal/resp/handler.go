package resp

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// A Handler answers commands. It is safe for concurrent use.
type Handler struct {
	decider *decide.Decider
	opts    Options
	log     throttle.Log
	slots   chan struct{} // one for each goroutine that decides a part of a pipeline
}

// Options for a Handler. The zero value is the default.
type Options struct {
	// Timeout bounds one decision. Zero is one second.
	Timeout time.Duration
	// MaxWait bounds how long a command can wait (WITHIN). Zero is not at all.
	MaxWait time.Duration
	// Tokens are those of reservations. Nil is some of this handler's own.
	Tokens *wire.Tokens
	// Now is the clock that the lives of tokens are held against. Nil is time.Now.
	Now func() time.Time
	// Access says which callers may decide. Nil is all.
	Access *access.Gate
	// Invalid is called for each command that is not decided because it is wrong. Nil is not called.
	Invalid func()
	// Log gets the store's failures, at most one a second. Nil is slog.Default.
	Log *slog.Logger
}

// New returns a handler. A nil opts is the default.
func New(decider *decide.Decider, opts *Options) *Handler {
	h := &Handler{decider: decider, slots: make(chan struct{}, mostBeside), opts: *cmp.Or(opts, &Options{})}
	h.opts.Timeout = cmp.Or(h.opts.Timeout, time.Second)
	h.opts.Tokens = cmp.Or(h.opts.Tokens, wire.NewTokens())
	if h.opts.Now == nil {
		h.opts.Now = time.Now
	}
	h.log.To = h.opts.Log
	return h
}

func (h *Handler) invalid() {
	if h.opts.Invalid != nil {
		h.opts.Invalid()
	}
}

// A refusal is why a command has no other answer: an error of RESP, which begins with a code.
type refusal struct {
	code, text string
}

// Error is the error as RESP has it.
func (r *refusal) Error() string { return r.code + " " + r.text }

// wrong is the refusal of a command that is written wrong.
func wrong(text string) *refusal { return &refusal{"ERR", text} }

// wrongArity has the words of Redis.
func wrongArity(command string) *refusal {
	return wrong("wrong number of arguments for '" + strings.ToLower(command) + "' command")
}

// codes are those of the errors of the engine. Others are failures of the store.
var codes = []struct {
	code string
	errs []error
}{
	{"NOPERM", []error{access.ErrNotAllowed}},
	{"SASHRULE", []error{config.ErrUnknownDomain, config.ErrNone, decide.ErrNotLimited, decide.ErrCountsRefused, decide.ErrNoQueue, sash.ErrUnsupported}},
	{"SASHCOST", []error{sash.ErrInvalidCost, sash.ErrCostAboveLimit}},
	{"SASHTOKEN", []error{wire.ErrToken, wire.ErrExpired, decide.ErrKept}},
	{"ERR", []error{sash.ErrInvalidLimit, sash.ErrInvalidKey, sash.ErrInvalidID}},
}

// refusal returns the refusal of a command that got no decision, with what a silent store means for it.
func (h *Handler) refusal(err error, silent *wire.Silence) *refusal {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	if errors.Is(err, access.ErrUnknown) {
		return &refusal{"NOAUTH", "Authentication required. " + err.Error()}
	}
	for _, of := range codes {
		if slices.ContainsFunc(of.errs, func(target error) bool { return errors.Is(err, target) }) {
			return &refusal{of.code, err.Error()}
		}
	}
	h.log.Log(slog.LevelError, "no decision", "error", err) // the error may disclose where the store is: not for the client
	text, cause := silent.Of(err)
	return &refusal{"SASHSTORE", cause + ": " + text}
}
