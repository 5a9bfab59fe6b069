package wire

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// A Decision is the answer to one request, as openapi.yaml describes it.
type Decision struct {
	Allowed    bool     `json:"allowed"`
	Part       *int64   `json:"part,omitempty"`        // the deciding part of a request with several, from 0 on
	Remaining  *int64   `json:"remaining"`             // the fewest units over all limits; null when nothing limits the call
	StartAfter *Seconds `json:"start_after,omitempty"` // for a request that can wait, or was booked before, and may go ahead
	Waited     *Seconds `json:"waited,omitempty"`      // of sash allow --wait
	RetryAfter Seconds  `json:"retry_after"`           // of a refusal
	ResetAfter Seconds  `json:"reset_after"`           // until every unit of every limit is free
	RefusedBy  *string  `json:"refused_by"`            // the name of the limit that refused, or decide.Ban, or null
	Blocked    bool     `json:"blocked,omitempty"`     // the subject is blocked because it was refused too often
	// Shadow says that the limits do not bind: Allowed is true, and RefusedBy and RetryAfter describe the shadow refusal.
	Shadow bool     `json:"shadow,omitempty"`
	Scope  string   `json:"scope,omitempty"` // "global" when the limits count the calls of all regions together
	Limits []Limit  `json:"limits"`          // empty when nothing limits the call
	At     *Instant `json:"at"`              // the store's clock at the decision; null when the store was not asked
	Source *string  `json:"source"`          // a sash.Source; null when nothing limits the call
	Cause  string   `json:"cause,omitempty"` // why the store did not decide, from cause.Of
	Token  string   `json:"token,omitempty"` // settles the reservation of a request that may go ahead
}

// AnswerOf returns the decision on a request of one part.
func AnswerOf(a *decide.Answer) Decision {
	d := Decision{Allowed: a.Allowed(), Limits: []Limit{}}
	if a.BannedBy != nil {
		d.Remaining, d.RefusedBy = new(int64(0)), new(a.RefusedBy.Limit.Name)
		d.RetryAfter, d.ResetAfter = Seconds(a.RefusedBy.RetryAfter), Seconds(a.RefusedBy.ResetAfter)
		return d
	}
	d.Shadow = a.Soft() && !a.Rule.Unlimited || a.Soft() && len(a.Limits) > 0 // an override may limit what the rule does not
	if len(a.Limits) == 0 {
		if a.Source == sash.FromPolicy {
			d.source(a)
		}
		return d
	}
	d.Blocked = a.Blocked && a.Refused
	tightest, _ := a.Tightest()
	d.Remaining, d.At = &tightest.Remaining, When(a.At)
	d.source(a)
	if a.Rule != nil && a.Rule.Place.Global {
		d.Scope = "global"
	}
	d.Limits = make([]Limit, len(a.Limits))
	for i := range a.Limits {
		l := &a.Limits[i]
		d.Limits[i] = LimitOf(l.Limit)
		d.Limits[i].Remaining = &l.Remaining
		d.ResetAfter = max(d.ResetAfter, Seconds(l.ResetAfter))
		if a.Refused {
			d.RetryAfter = max(d.RetryAfter, Seconds(l.RetryAfter))
		}
	}
	if a.Refused {
		d.RefusedBy = new(a.RefusedBy.Limit.Name)
	}
	return d
}

// decisionOn returns AnswerOf for one of several parts: the refused part with the longest wait, or else the part with the
// fewest units left. If the request could wait or was booked before, and is admitted, the decision says when it starts.
func decisionOn(req *decide.Request, answers []decide.Answer) Decision {
	left := func(a *decide.Answer) int64 {
		tightest, limited := a.Tightest()
		switch {
		case !a.Allowed():
			return -1 - int64(a.RefusedBy.RetryAfter)
		case limited:
			return tightest.Remaining
		}
		return math.MaxInt64
	}
	part := 0
	for i := range answers {
		if left(&answers[i]) < left(&answers[part]) {
			part = i
		}
	}
	a := &answers[part]
	d := AnswerOf(a)
	if d.Allowed && (req.Within > 0 || a.Delay > 0) {
		d.StartAfter = new(Seconds(a.Delay))
	}
	if req.Any || len(req.Parts) > 1 {
		d.Part = new(int64(part + a.Chosen))
	}
	return d
}

// A Way returns the decision of an engine on a request.
type Way func(ctx context.Context, engine *decide.Decider, req *decide.Request) (Decision, error)

// Decide decides a request, and charges it.
var Decide = way((*decide.Decider).Decide)

// Peek returns the decision that Decide would return, and charges nothing.
var Peek = way((*decide.Decider).Peek)

func way(ask func(*decide.Decider, context.Context, decide.Request) ([]decide.Answer, error)) Way {
	return func(ctx context.Context, engine *decide.Decider, req *decide.Request) (d Decision, err error) {
		answers, err := ask(engine, ctx, *req)
		if err == nil {
			d = decisionOn(req, answers)
		}
		return d, err
	}
}

// ResultOf returns the decision of a limiter.
func ResultOf(res sash.Result) Decision {
	a := answerOf(res)
	a.RefusedBy, a.Refused = res.RefusedBy()
	return AnswerOf(&a)
}

// PeekOf returns the decision that a limiter would make on a call with this cost: see decide.Answer.Foresee.
func PeekOf(res sash.Result, cost int64) Decision {
	a := answerOf(res)
	a.Foresee(cost)
	return AnswerOf(&a)
}

func answerOf(res sash.Result) decide.Answer {
	return decide.Answer{Limits: res.Limits(), At: res.At, Source: res.Source, Cause: res.Cause}
}

func (d *Decision) source(a *decide.Answer) {
	d.Source = new(a.Source.String())
	if a.Cause != nil {
		d.Cause = cause.Of(a.Cause)
	}
}

// A Limit is one limit and, if known, what is left of it.
type Limit struct {
	Name      string  `json:"name"` // as configured, or the text of the limit, such as "10/1m"
	Units     int64   `json:"units"`
	Window    Seconds `json:"window"`              // 0 for a calendar limit
	Period    string  `json:"period,omitempty"`    // of a calendar limit, such as "day@Europe/Paris"
	Remaining *int64  `json:"remaining,omitempty"` // absent if only the limit is described
}

// LimitOf returns a limit without its use.
func LimitOf(l sash.Limit) Limit {
	out := Limit{Name: l.Name, Units: l.Units, Window: Seconds(l.Window)}
	if out.Name == "" {
		out.Name = l.String()
	}
	if l.Period != 0 {
		_, out.Period, _ = strings.Cut(l.String(), "/")
	}
	return out
}

// Seconds is a duration that JSON writes in seconds, to the microsecond.
type Seconds time.Duration

// MarshalJSON writes a decimal with no more digits than needed.
func (s Seconds) MarshalJSON() ([]byte, error) {
	micros := time.Duration(s).Microseconds()
	b := strconv.AppendInt(nil, micros/1e6, 10)
	if rest := micros % 1e6; rest != 0 {
		digits := strconv.FormatInt(1e6+rest, 10)[1:]
		b = append(b, '.')
		b = append(b, strings.TrimRight(digits, "0")...)
	}
	return b, nil
}

// UnmarshalJSON reads a number. Null leaves the duration as it is.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	text := string(b)
	if text == "null" {
		return nil
	}
	if number, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, "eE") {
		text = strconv.FormatFloat(number, 'f', -1, 64) // without an exponent, which durations cannot have
	}
	d, err := time.ParseDuration(text + "s")
	if err != nil {
		return fmt.Errorf("%.40s is no number of seconds", text)
	}
	*s = Seconds(d)
	return nil
}

// RoundUp returns whole seconds, rounded up, for the Retry-After field of HTTP.
func (s Seconds) RoundUp() int64 {
	return int64((time.Duration(s) + time.Second - 1) / time.Second)
}

// SetRetryAfter sets the Retry-After of an answer without a decision: 1 to 5 seconds at random, since many calls failed together.
func SetRetryAfter(h http.Header) { h.Set("Retry-After", strconv.Itoa(1+rand.N(5))) }

// Instant is a time that JSON writes as RFC 3339 in UTC with six decimals.
type Instant time.Time

const instantLayout = "2006-01-02T15:04:05.000000Z07:00"

// MarshalJSON writes the instant.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(i).UTC().Format(`"` + instantLayout + `"`)), nil
}

// UnmarshalJSON reads an RFC 3339 time.
func (i *Instant) UnmarshalJSON(b []byte) error {
	return (*time.Time)(i).UnmarshalJSON(b)
}

// When returns a time in its JSON form, or nil for the zero time.
func When(t time.Time) *Instant {
	if t.IsZero() {
		return nil
	}
	return new(Instant(t))
}

// MaxToken bounds a token. With sash.MaxSubjects parts, the longest keys and the most limits, a token takes half of it.
const MaxToken = 12 << 10

// encoding is the variant of base64url in which every token has exactly one form.
var encoding = base64.RawURLEncoding.Strict()

// ErrToken means that a token was not sealed with this key.
var ErrToken = errors.New("the token is not valid here: it was changed, or given by an instance with another SASH_TOKEN_KEY")

// ErrExpired means that no charge is left to settle or extend.
var ErrExpired = errors.New("the reservation has expired: a charge of it has left every window, or was given back")

// Tokens turns reservations into tokens for clients, and back. All ports share it. Anyone can read a token: it contains the
// subject of the request and its limits. Nobody can create or change one without the key, because a forged token would give
// back units that were never charged.
//
// The first key seals and all keys open, so that a fleet can change keys without losing a reservation.
//
// A token is the reservation as JSON, or a list of several parts, then a dot and the HMAC-SHA-256. Both are in base64url.
type Tokens struct {
	// Now is the clock that determines whether reservations have expired.
	Now  func() time.Time
	keys [][]byte
}

// NewTokens returns Tokens with these keys, or with a random key if there are none.
func NewTokens(keys ...[]byte) *Tokens {
	if len(keys) == 0 {
		keys = [][]byte{make([]byte, sha256.Size)}
		_, _ = crand.Read(keys[0]) // never fails
	}
	return &Tokens{Now: time.Now, keys: keys}
}

// A sealed is the form of a reservation in a token. It is empty if the reservation charged nothing.
type sealed struct {
	Domain     string         `json:"d,omitempty"`
	Key        string         `json:"k,omitempty"`
	Units      int64          `json:"u,omitempty"`
	At         int64          `json:"t,omitempty"` // microseconds since the Unix epoch
	Delay      time.Duration  `json:"w,omitempty"`
	Limits     []string       `json:"l,omitempty"`
	Algorithm  sash.Algorithm `json:"a,omitempty"`
	Resolution time.Duration  `json:"r,omitempty"`
	Source     sash.Source    `json:"s,omitempty"`
	ID         string         `json:"i,omitempty"`
	Instance   string         `json:"n,omitempty"`
	Global     bool           `json:"g,omitempty"`
	Lease      time.Duration  `json:"e,omitempty"`
	Regions    int            `json:"o,omitempty"` // for an own share: the number of regions, of Percent each
	Percent    int            `json:"p,omitempty"`
}

// Seal returns the token of a reservation, or of the reservations for the parts of a request.
func (t *Tokens) Seal(held ...decide.Reservation) string {
	all := make([]sealed, len(held))
	for i := range held {
		r := &held[i]
		if r.Units == 0 {
			continue
		}
		s := sealed{
			Domain: r.Domain, Key: r.Key, Units: r.Units, At: r.At.UnixMicro(), Delay: r.Delay, Source: r.Source, ID: r.ID, Instance: r.Instance,
			Algorithm: r.Policy.Algorithm, Resolution: r.Policy.Resolution, Global: r.Place.Global, Lease: r.Place.Lease,
			Regions: r.Place.Own.Regions, Percent: r.Place.Own.Percent,
		}
		for _, l := range r.Policy.Limits {
			s.Limits = append(s.Limits, l.String())
		}
		all[i] = s
	}
	var payload bytes.Buffer
	encoder := json.NewEncoder(&payload)
	encoder.SetEscapeHTML(false) // escaping would make a key of ampersands six times as long
	var of any = all
	if len(all) == 1 {
		of = all[0]
	}
	_ = encoder.Encode(of) // texts and numbers only
	return encoding.EncodeToString(payload.Bytes()) + "." + encoding.EncodeToString(mac(t.keys[0], payload.Bytes()))
}

// Reserve is Decide for a request whose units are settled later. A decision that admits it contains the token.
func (t *Tokens) Reserve(ctx context.Context, engine *decide.Decider, req *decide.Request) (d Decision, err error) {
	answers, held, err := engine.ReserveAll(ctx, *req)
	if err != nil {
		return d, err
	}
	if d = decisionOn(req, answers); len(held) > 0 {
		d.Token = t.Seal(held...)
	}
	return d, nil
}

// Open returns the reservations in a token, or ErrToken.
func (t *Tokens) Open(token string) ([]decide.Reservation, error) {
	if strings.ContainsAny(token, "\r\n") { // package base64 ignores these characters
		return nil, ErrToken
	}
	first, second, _ := strings.Cut(token, ".")
	payload, err := encoding.DecodeString(first)
	given, err2 := encoding.DecodeString(second)
	ours := func(key []byte) bool { return hmac.Equal(given, mac(key, payload)) }
	if err != nil || err2 != nil || !slices.ContainsFunc(t.keys, ours) {
		return nil, ErrToken
	}
	if !bytes.HasPrefix(payload, []byte("[")) {
		payload = slices.Concat([]byte("["), payload, []byte("]"))
	}
	var all []sealed
	if json.Unmarshal(payload, &all) != nil {
		return nil, ErrToken // of another version
	}
	held := make([]decide.Reservation, len(all))
	for i := range all {
		if held[i], err = all[i].open(); err != nil {
			return nil, err
		}
	}
	return held, nil
}

func (s *sealed) open() (r decide.Reservation, err error) {
	if s.Units == 0 {
		return r, nil
	}
	limits := make([]sash.Limit, len(s.Limits))
	for i, text := range s.Limits {
		if limits[i], err = sash.ParseLimit(text); err != nil {
			return r, ErrToken
		}
	}
	policy, err := sash.NewPolicy(&sash.Options{Algorithm: s.Algorithm, Resolution: s.Resolution}, limits...)
	if err != nil {
		return r, ErrToken
	}
	return decide.Reservation{
		Domain: s.Domain, Key: s.Key, Units: s.Units, At: time.UnixMicro(s.At), Delay: s.Delay, Policy: policy, Source: s.Source, ID: s.ID, Instance: s.Instance,
		Place: config.Place{Global: s.Global, Lease: s.Lease, Own: config.OwnShare{Regions: s.Regions, Percent: s.Percent}},
	}, nil
}

func mac(key, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("sash reservation 1\n"))
	mac.Write(payload)
	return mac.Sum(nil)
}

// clockSlack is how much the clocks of the service and its store may differ before a reservation expires too early.
const clockSlack = time.Minute

// permitted opens a token if permit allows its caller to decide in the domains of the reservations. An empty
// domain is any. The error is that of permit, ErrToken, or ErrExpired if every charge has left its windows.
func (t *Tokens) permitted(token string, permit func(domain string) error) ([]decide.Reservation, error) {
	held, err := t.Open(token)
	if err != nil {
		held = []decide.Reservation{{}} // without a domain, like the token of an empty reservation
	}
	expired := 0
	for i := range held {
		r := &held[i]
		if denied := permit(r.Domain); denied != nil {
			return nil, denied
		}
		if r.Units > 0 && t.Now().After(r.Expires().Add(clockSlack)) {
			expired++
		}
	}
	if err == nil && expired > 0 && expired == len(held) {
		err = ErrExpired
	}
	return held, err
}

// ParseUsed reads the units for Tokens.Settle.
func ParseUsed[T ~string | ~[]byte](texts []T) (used []int64, err error) {
	for _, text := range texts {
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no number of units: give how many were used, by each subject, or 0 to give all of them back", Clip(string(text)))
		}
		used = append(used, n)
	}
	return used, nil
}

// Settle corrects the charges of a token's reservation to the units used, in the order of its parts, if permit allows it. No units, or a
// single 0, give all charges back. Errors are those of permitted and of the engine. After an engine error, the other parts are settled.
func (t *Tokens) Settle(ctx context.Context, engine *decide.Decider, token string, used []int64, permit func(domain string) error) error {
	held, err := t.permitted(token, permit)
	if err != nil {
		return err
	}
	if len(used) == 0 || len(used) == 1 && used[0] == 0 {
		used = make([]int64, len(held))
	}
	if len(used) != len(held) {
		return fmt.Errorf("%w: the reservation has %d parts: give the units that each used, in their order", sash.ErrInvalidCost, len(held))
	}
	if err := decide.CheckUsed(used...); err != nil {
		return err
	}
	for i := range held {
		err = cmp.Or(err, engine.Settle(ctx, &held[i], used[i]))
	}
	return err
}

// Extend charges a token's reservation anew and returns the token that replaces it. Errors are those of Settle,
// and ErrExpired if a charge has left its windows or was given back.
func (t *Tokens) Extend(ctx context.Context, engine *decide.Decider, token string, permit func(domain string) error) (string, error) {
	held, err := t.permitted(token, permit)
	if err != nil {
		return "", err
	}
	there, err := engine.Extend(ctx, held)
	switch {
	case err != nil:
		return "", err
	case !there:
		return "", ErrExpired
	}
	return t.Seal(held...), nil
}
