package resp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
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

// refuse writes the error of a command that got no decision.
func (h *Handler) refuse(out *reply, err error) { h.refuseAs(out, err, &wire.Undecided) }

// refuseAs is refuse, with what a silent store means for the command.
func (h *Handler) refuseAs(out *reply, err error, silent *wire.Silence) {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		out.fail(refused.code, refused.text)
	case errors.Is(err, access.ErrUnknown):
		out.fail("NOAUTH", "Authentication required. "+err.Error())
	case errors.Is(err, access.ErrNotAllowed):
		out.fail("NOPERM", err.Error())
	case errors.Is(err, config.ErrUnknownDomain), errors.Is(err, config.ErrNone), errors.Is(err, decide.ErrNotLimited),
		errors.Is(err, decide.ErrCountsRefused), errors.Is(err, decide.ErrNoQueue), errors.Is(err, sash.ErrUnsupported):
		out.fail("SASHRULE", err.Error())
	case errors.Is(err, sash.ErrInvalidCost), errors.Is(err, sash.ErrCostAboveLimit):
		out.fail("SASHCOST", err.Error())
	case errors.Is(err, wire.ErrToken), errors.Is(err, wire.ErrExpired), errors.Is(err, decide.ErrKept):
		out.fail("SASHTOKEN", err.Error())
	case errors.Is(err, sash.ErrInvalidLimit), errors.Is(err, sash.ErrInvalidKey), errors.Is(err, sash.ErrInvalidID):
		out.fail("ERR", err.Error())
	default:
		h.log.Log(slog.LevelError, "no decision", "error", err) // the error may disclose where the store is: not for the client
		text, cause := silent.Of(err)
		out.fail("SASHSTORE", cause+": "+text)
	}
}

// within returns a context that bounds one decision.
func (h *Handler) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, h.opts.Timeout)
}
