package resp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// A Handler answers commands. It is safe for concurrent use.
type Handler struct {
	decider *decide.Decider
	opts    Options
	log     throttle.Log
	slots   *conns.Share // of goroutines that decide parts of pipelines
	scripts scripts
}

// Options for a Handler. The zero value is the default.
type Options struct {
	Timeout time.Duration   // bounds one decision; zero is one second
	MaxWait time.Duration   // bounds WITHIN; zero is not at all
	Tokens  *wire.Tokens    // for reservations; nil is tokens of this handler's own
	Access  *access.Gate    // which callers may decide; nil is all
	Stats   *stats.Registry // counts invalid commands and faults; nil counts nowhere
	Log     *slog.Logger    // gets failures of the store, at most one a second; nil is slog.Default
}

// New returns a handler. A nil opts is the default.
func New(decider *decide.Decider, opts *Options) *Handler {
	h := &Handler{decider: decider, slots: conns.NewShare(maxGoroutines), opts: *cmp.Or(opts, &Options{})}
	h.opts.Timeout = cmp.Or(h.opts.Timeout, time.Second)
	h.opts.Tokens = cmp.Or(h.opts.Tokens, wire.NewTokens())
	h.opts.Stats = cmp.Or(h.opts.Stats, stats.New(nil))
	h.log.To = h.opts.Log
	return h
}

// A refusal is an error reply, for a command that has no other answer. It begins with a code.
type refusal struct {
	code, text string
}

// Error returns the error as RESP writes it.
func (r *refusal) Error() string { return r.code + " " + r.text }

func wrong(text string) *refusal { return &refusal{"ERR", text} }

func wrongArity(command string) *refusal {
	return wrong("wrong number of arguments for '" + strings.ToLower(command) + "' command")
}

// refusal returns the error reply to a command that got no decision. Silent says what a store that does not answer means for it.
func (h *Handler) refusal(err error, silent *wire.Silence) *refusal {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	switch _, code := wire.Codes(err); {
	case errors.Is(err, access.ErrUnknown):
		return &refusal{"NOAUTH", "Authentication required. " + err.Error()}
	case errors.Is(err, access.ErrNotAllowed):
		return &refusal{"NOPERM", err.Error()}
	case code != "":
		return &refusal{code, err.Error()}
	}
	h.log.Log(slog.LevelError, "no decision", "error", err) // the error may disclose where the store is: not for the client
	text, cause := silent.Of(err)
	return &refusal{"SASHSTORE", cause + ": " + text}
}

type decision struct {
	subject string                                      // commands with the same subject stay in order
	silent  *wire.Silence                               // what a store that does not answer means for it
	make    func(ctx context.Context, out *reply) error // writes a reply unless it returns an error
}

// parse reads a command that requests units. It accepts the options in takes beside those of all commands. By makes the reply.
func (c *conn) parse(args [][]byte, silent *wire.Silence, by wire.Way, takes ...string) (decision, error) {
	req, err := c.parseRequest(args, access.Decide, takes...)
	if err != nil {
		return decision{}, err
	}
	engine := c.handler.decider
	return decision{engine.Subject(&req), silent, func(ctx context.Context, out *reply) error {
		d, err := by(ctx, engine, &req)
		if err == nil {
			out.decision(&d)
		}
		return err
	}}, nil
}

func allow(c *conn, args [][]byte) (decision, error) {
	return c.parse(args, &wire.Undecided, wire.Decide, "ID", "AND", "OR")
}

// book reads SASH.BOOK, which books a turn at most WITHIN away. The reply says when the turn comes.
func book(c *conn, args [][]byte) (decision, error) {
	return c.parse(args, &wire.Undecided, func(ctx context.Context, engine *decide.Decider, req *decide.Request) (wire.Decision, error) {
		if req.Within == 0 {
			return wire.Decision{}, wrong("syntax error: give WITHIN seconds, the longest that the caller can wait, above 0")
		}
		return wire.Decide(ctx, engine, req)
	}, "ID", "WITHIN")
}

func peek(c *conn, args [][]byte) (decision, error) {
	return c.parse(args, &wire.Unseen, wire.Peek, "AND")
}

func reserve(c *conn, args [][]byte) (decision, error) {
	return c.parse(args, &wire.Undecided, c.handler.opts.Tokens.Reserve, "ID", "WITHIN", "AND", "OR")
}

// settle reads SASH.SETTLE token used [used …].
func settle(c *conn, args [][]byte) (decision, error) {
	used, err := wire.ParseUsed(args[1:])
	if err != nil {
		return decision{}, wrong("syntax error: " + err.Error())
	}
	return c.ofToken(args[0], &wire.Unsettled, func(ctx context.Context, token string, permit func(string) error, out *reply) error {
		err := c.handler.opts.Tokens.Settle(ctx, c.handler.decider, token, used, permit)
		if err == nil {
			out.status("OK")
		}
		return err
	})
}

// extend reads SASH.EXTEND token. The reply is a new token for the reservation.
func extend(c *conn, args [][]byte) (decision, error) {
	return c.ofToken(args[0], &wire.Unextended, func(ctx context.Context, token string, permit func(string) error, out *reply) error {
		extended, err := c.handler.opts.Tokens.Extend(ctx, c.handler.decider, token, permit)
		if err == nil {
			out.text(extended)
		}
		return err
	})
}

// ofToken makes a decision from the token of a reservation by do, for a caller who may decide somewhere. Commands on one token stay in order.
func (c *conn) ofToken(arg []byte, silent *wire.Silence,
	do func(ctx context.Context, token string, permit func(domain string) error, out *reply) error) (decision, error) {
	caller, err := c.permit("", access.Decide)
	permit := func(domain string) error { return c.handler.opts.Access.Permit(caller, domain, access.Decide) }
	token := string(arg)
	return decision{token, silent, func(ctx context.Context, out *reply) error { return do(ctx, token, permit, out) }}, err
}

var notReset = wire.Silence{
	Unknown:  "the store did not answer: whether the subject was reset is not known; send this again",
	NotAsked: "the store was not asked: nothing was reset; send this again",
}

// reset answers SASH.RESET. It needs the right to refund, because it gives back the charges of any caller.
func reset(ctx context.Context, c *conn, args [][]byte) error {
	req, err := c.parseRequest(args, access.Refund)
	if err == nil && !req.Parts[0].ByRule {
		err = wrong("syntax error: SASH.RESET forgets all charges, and takes no COST")
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.handler.opts.Timeout)
	defer cancel()
	if err = c.handler.decider.ResetFor(ctx, req); err != nil {
		return c.handler.refusal(err, &notReset)
	}
	c.out.status("OK")
	return nil
}

// allCharges are limits that count whatever a key was charged.
var allCharges = []sash.Limit{{Units: sash.MaxUnits, Window: sash.MaxWindow}}

// del answers DEL and UNLINK key [key …] with how many of the keys the store had. The keys are those of commands with LIMIT.
func del(ctx context.Context, c *conn, args [][]byte) error {
	if _, err := c.permit(decide.OfRequest, access.Refund|access.Override); err != nil {
		return err
	}
	for _, key := range args {
		if err := checkKey(string(key)); err != nil {
			return err
		}
	}
	there := int64(0)
	for _, key := range args {
		req := decide.Given(string(key), allCharges, nil)
		ctx, cancel := context.WithTimeout(ctx, c.handler.opts.Timeout) // for each key: there may be many
		answers, err := c.handler.decider.Peek(ctx, req)
		if err == nil {
			err = c.handler.decider.ResetFor(ctx, req)
		}
		cancel()
		if err != nil {
			return c.handler.refusal(err, &notReset)
		}
		if answers[0].Limits[0].Remaining < sash.MaxUnits {
			there++
		}
	}
	c.out.number(there)
	return nil
}

// cellError returns an error in the words of redis-cell, which have no code.
func cellError(text string) *refusal { return &refusal{"Cell", "error: " + text} }

// throttled reads CL.THROTTLE key max_burst count period [quantity] of redis-cell. Its window slides: see slidingLimit.
func throttled(c *conn, args [][]byte) (decision, error) {
	if len(args) != 4 && len(args) != 5 {
		return decision{}, cellError("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[1:] {
		var err error
		if numbers[i], err = strconv.ParseInt(string(arg), 10, 64); err != nil {
			return decision{}, cellError("Couldn't parse as integer: " + wire.Clip(string(arg)))
		}
	}
	limit, err := slidingLimit(numbers[0], numbers[1], numbers[2])
	if err != nil {
		return decision{}, err
	}
	key, quantity := string(args[0]), numbers[3]
	if err := checkKey(key); err != nil {
		return decision{}, err
	}
	if quantity < 0 {
		return decision{}, cellError("quantity must not be negative: SASH.RESERVE and SASH.SETTLE give units back")
	}
	if _, err := c.permit(decide.OfRequest, access.Decide|access.Bring(&limit)); err != nil {
		return decision{}, err
	}
	cost := max(quantity, 1)
	req := decide.Given(key, []sash.Limit{limit}, &cost)
	req.Port = decide.RESP
	return decision{c.handler.decider.Subject(&req), &wire.Undecided, func(ctx context.Context, out *reply) error {
		return c.handler.throttle(ctx, req, limit.Units, quantity, out)
	}}, nil
}

// slidingLimit returns the limit of CL.THROTTLE. Its units are what redis-cell admits at once, max_burst and one. Its
// window, rounded up, is the time in which redis-cell admits as many again, at count in a period of seconds. So no
// window has more, the rate over a long time is the same, and a caller that keeps evenly to the rate is never refused.
func slidingLimit(maxBurst, count, period int64) (sash.Limit, error) {
	switch {
	case maxBurst < 0 || maxBurst >= sash.MaxUnits:
		return sash.Limit{}, cellError(fmt.Sprintf("max_burst is 0 to %d", int64(sash.MaxUnits)-1))
	case count < 1:
		return sash.Limit{}, cellError("count per period must be at least 1")
	case period < 1 || period > int64(sash.MaxWindow/time.Second):
		return sash.Limit{}, cellError(fmt.Sprintf("period is 1 to %d seconds", int64(sash.MaxWindow/time.Second)))
	}
	longest, shortest := uint64(sash.MaxWindow/time.Microsecond), uint64(sash.MinWindow/time.Microsecond)
	window := longest + 1
	if high, low := bits.Mul64(uint64(period)*uint64(time.Second/time.Microsecond), uint64(maxBurst)+1); high < uint64(count) {
		whole, rest := bits.Div64(high, low, uint64(count))
		if window = whole; rest > 0 && whole <= longest {
			window++
		}
	}
	if window < shortest || window > longest {
		return sash.Limit{}, cellError(fmt.Sprintf("%d units at %d in %d s are a window of less than %v or more than %v",
			maxBurst+1, count, period, sash.MinWindow, sash.MaxWindow))
	}
	return sash.Limit{Units: maxBurst + 1, Window: time.Duration(window) * time.Microsecond}, nil
}

// throttle answers with the five integers of redis-cell. A quantity of 0 charges nothing. A quantity above the limit
// never fits, so its retry_after is -1. Seconds are rounded up, so that a caller that waits for them is not too early.
func (h *Handler) throttle(ctx context.Context, req decide.Request, limit, quantity int64, out *reply) error {
	var answers []decide.Answer
	var err error
	never := false
	if quantity > 0 {
		answers, err = h.decider.Decide(ctx, req)
		never = errors.Is(err, sash.ErrCostAboveLimit)
	}
	if quantity == 0 || never {
		req.Parts[0].Cost = 1
		answers, err = h.decider.Peek(ctx, req)
	}
	if err != nil {
		return err
	}
	a := &answers[0]
	refused := never || quantity > 0 && a.Refused
	retry := int64(-1)
	if refused && !never {
		retry = wire.Seconds(a.RefusedBy.RetryAfter).RoundUp()
	}
	tightest, _ := a.Tightest()
	out.list('*', 5)
	out.flag(refused)
	for _, n := range []int64{limit, tightest.Remaining, retry, wire.Seconds(tightest.ResetAfter).RoundUp()} {
		out.number(n)
	}
	return nil
}

// A question is a command that requests units, while it is read.
type question struct {
	takes []string          // the names of its options
	given map[string]string // options of the whole command, not of one subject
	need  access.Right
	req   decide.Request
}

// subject reads a name and options with their values, in any order. The name is a domain with ENTRY and a key with
// LIMIT. It returns the arguments from AND or OR on.
func (q *question) subject(args [][]byte) (rest [][]byte, err error) {
	name := string(args[0])
	var entries []config.Entry
	var limits []sash.Limit
	var cost *int64
	for args = args[1:]; len(args) > 0; {
		option, n := word(args), 1
		if option == "ENTRY" {
			n = 2
		}
		_, again := q.given[option]
		switch {
		case !slices.Contains(q.takes, option):
			return nil, wrong("syntax error: '" + wire.Clip(option) + "' is no option here: give ENTRY key value, or LIMIT limit, COST units" +
				strings.Join(append([]string{""}, q.takes[3:]...), ", "))
		case len(args) <= n:
			return nil, wrong(fmt.Sprintf("syntax error: %s needs %d behind it", option, n))
		case again, option == "COST" && cost != nil:
			return nil, wrong("syntax error: " + option + " is there twice")
		case option == "ENTRY":
			entries = append(entries, config.Entry{Key: string(args[1]), Value: string(args[2])})
		case option == "LIMIT":
			limit, err := sash.ParseLimit(string(args[1]))
			if err != nil {
				return nil, wrong(err.Error())
			}
			limits, q.need = append(limits, limit), q.need|access.Bring(&limit)
		case option == "COST":
			units, err := strconv.ParseInt(string(args[1]), 10, 64)
			if err != nil {
				return nil, wrong("value is not an integer or out of range: COST " + wire.Clip(string(args[1])))
			}
			cost = &units
		case option == "AND", option == "OR":
			return args, q.add(name, entries, limits, cost)
		default:
			q.given[option] = string(args[1])
		}
		args = args[1+n:]
	}
	return nil, q.add(name, entries, limits, cost)
}

func (q *question) add(name string, entries []config.Entry, limits []sash.Limit, cost *int64) error {
	if err := checkSubject(name, entries, limits); err != nil {
		return err
	}
	one := decide.One(name, entries, cost)
	if len(limits) > 0 {
		one = decide.Given(name, limits, cost)
	}
	if len(q.req.Parts) > 0 && one.Domain != q.req.Domain {
		return wrong("syntax error: the subjects of a command are of one domain, or keys with LIMIT")
	}
	q.req.Domain, q.req.Parts = one.Domain, append(q.req.Parts, one.Parts...)
	return nil
}

// parseRequest reads a subject, or several with AND or OR between them. The error is a refusal, or says which right
// the caller lacks: need, or the right to set a limit.
func (c *conn) parseRequest(args [][]byte, need access.Right, takes ...string) (req decide.Request, err error) {
	for _, arg := range args {
		if !utf8.Valid(arg) {
			return req, wrong("an argument is not UTF-8")
		}
	}
	q := question{takes: append([]string{"ENTRY", "LIMIT", "COST"}, takes...), given: make(map[string]string), need: need}
	of := ""
	for len(args) > 0 {
		if args, err = q.subject(args); err != nil {
			return req, err
		}
		if len(args) > 0 {
			if of != "" && of != word(args) {
				return req, wrong("syntax error: give AND between the subjects, for all of them, or OR, for any")
			}
			of, args = word(args), args[1:]
		}
	}
	req, given := q.req, q.given
	req.Port, req.Any = decide.RESP, of == "OR"
	id, named := given["ID"]
	if req.ID = id; named && (id == "" || len(id) > decide.MaxIDLength) {
		return req, wrong(fmt.Sprintf("the ID has %d bytes: it must have 1 to %d", len(id), decide.MaxIDLength))
	}
	if text, ok := given["WITHIN"]; ok {
		if req.Within, err = time.ParseDuration(text + "s"); err != nil || strings.Trim(text, "0123456789.") != "" {
			return req, wrong("value is not a number of seconds: WITHIN " + wire.Clip(text))
		}
		if most := c.handler.opts.MaxWait; req.Within > most {
			return req, wrong(fmt.Sprintf("WITHIN %v: it can be up to %v seconds here (sash serve --max-wait)", req.Within.Seconds(), most.Seconds()))
		}
	}
	caller, err := c.permit(req.Domain, q.need)
	if err == nil {
		req.Book = caller.May(req.Domain, access.Book)
	}
	return req, err
}

// checkSubject returns what is wrong with the name, the entries and the limits of a command.
func checkSubject(name string, entries []config.Entry, limits []sash.Limit) error {
	switch {
	case len(entries) > 0 && len(limits) > 0:
		return wrong("syntax error: ENTRY is for the rules of a domain, and LIMIT for a key without a rule: give one of them")
	case len(entries) == 0 && len(limits) == 0:
		return wrong("syntax error: give ENTRY key value, for a rule of the domain, or LIMIT limit, such as 25/5s, for a key")
	case len(limits) > 0:
		return checkKey(name)
	}
	for _, e := range entries {
		if strings.TrimSpace(e.Value) == "" {
			return wrong(fmt.Sprintf("the value of %q is empty or blank, and every caller without one would share a limit", wire.Clip(e.Key)))
		}
	}
	if err := (&wire.Subject{Domain: name, Entries: entries}).Check(); err != nil {
		return wrong(err.Error())
	}
	return nil
}

// checkKey returns what is wrong with a key. An empty key is most likely a variable that a program did not set.
func checkKey(key string) error {
	switch {
	case strings.TrimSpace(key) == "":
		return wrong("the key is empty or blank, and every caller without one would share a limit")
	case !utf8.ValidString(key):
		return wrong("the key is not UTF-8")
	}
	return nil
}
