package wire

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// MaxToken bounds a token. One with the longest key and the most limits takes a quarter of it, and a long name of a
// domain has room.
const MaxToken = 8192

// encoding is base64url in which every token has one form.
var encoding = base64.RawURLEncoding.Strict()

// ErrToken means that a token was not sealed with this key.
var ErrToken = errors.New("the token is not valid here: it was changed, or given by an instance with another SASH_TOKEN_KEY")

// ErrExpired means that there is nothing to settle.
var ErrExpired = errors.New("the reservation has expired: its charge has left every window, and there is nothing to settle")

// Tokens turns reservations into texts for clients, and back; all ports have the same. Anyone with such a text can read
// it: it holds the subject of the request and its limits. It cannot be made or changed without the key, because a
// forged one would give back units that were never charged.
//
// The first key seals and all keys open, so that a fleet changes keys without losing a reservation.
//
// The form is the reservation as JSON and its HMAC-SHA-256, each in base64url, with a dot between them.
type Tokens struct {
	// Now is the clock that the lives of reservations are held against.
	Now  func() time.Time
	keys [][]byte
}

// NewTokens takes a random key if there is none.
func NewTokens(keys ...[]byte) *Tokens {
	if len(keys) == 0 {
		keys = [][]byte{make([]byte, sha256.Size)}
		_, _ = rand.Read(keys[0]) // never fails
	}
	return &Tokens{Now: time.Now, keys: keys}
}

// A sealed is a reservation as a token holds it. Of one that charged nothing all is empty.
type sealed struct {
	Domain     string         `json:"d,omitempty"` // tokens of earlier versions have none
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
	Home       string         `json:"h,omitempty"` // of a reservation of an earlier version at a home with a name
	Lease      time.Duration  `json:"e,omitempty"`
	Regions    int            `json:"o,omitempty"` // with an own share, of Percent each
	Percent    int            `json:"p,omitempty"`
}

// Seal returns the token of a reservation.
func (t *Tokens) Seal(r *decide.Reservation) string {
	var s sealed
	if r.Units > 0 {
		s = sealed{
			Domain: r.Domain, Key: r.Key, Units: r.Units, At: r.At.UnixMicro(), Delay: r.Delay, Source: r.Source, ID: r.ID, Instance: r.Instance,
			Algorithm: r.Policy.Algorithm, Resolution: r.Policy.Resolution, Global: r.Place.Global, Lease: r.Place.Lease,
			Regions: r.Place.Own.Regions, Percent: r.Place.Own.Percent,
		}
		for _, l := range r.Policy.Limits {
			s.Limits = append(s.Limits, l.String())
		}
	}
	var payload bytes.Buffer
	encoder := json.NewEncoder(&payload)
	encoder.SetEscapeHTML(false) // which would make a key of ampersands six times as long
	_ = encoder.Encode(s)        // texts and numbers only
	return encoding.EncodeToString(payload.Bytes()) + "." + encoding.EncodeToString(mac(t.keys[0], payload.Bytes()))
}

// Reserve is Decide for a request whose units are settled later. A decision that admits it has the token.
func (t *Tokens) Reserve(ctx context.Context, engine *decide.Decider, req *decide.Request) (d Decision, err error) {
	answer, reservation, err := engine.Reserve(ctx, *req)
	if err != nil {
		return d, err
	}
	if d = decisionOn(req, &answer); reservation != nil {
		d.Token = t.Seal(reservation)
	}
	return d, nil
}

// Open returns what was sealed, or ErrToken.
func (t *Tokens) Open(token string) (*decide.Reservation, error) {
	if strings.ContainsAny(token, "\r\n") { // which package base64 overlooks
		return nil, ErrToken
	}
	first, second, _ := strings.Cut(token, ".")
	payload, err := encoding.DecodeString(first)
	given, err2 := encoding.DecodeString(second)
	ours := func(key []byte) bool { return hmac.Equal(given, mac(key, payload)) }
	if err != nil || err2 != nil || !slices.ContainsFunc(t.keys, ours) {
		return nil, ErrToken
	}
	var s sealed
	if json.Unmarshal(payload, &s) != nil || s.Home != "" {
		return nil, ErrToken // of another version
	}
	if s.Units == 0 {
		return &decide.Reservation{}, nil
	}
	limits := make([]sash.Limit, len(s.Limits))
	for i, text := range s.Limits {
		if limits[i], err = sash.ParseLimit(text); err != nil {
			return nil, ErrToken
		}
	}
	policy, err := sash.NewPolicy(&sash.Options{Algorithm: s.Algorithm, Resolution: s.Resolution}, limits...)
	if err != nil {
		return nil, ErrToken
	}
	return &decide.Reservation{
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

// clockSlack is how much the clocks of the service and its store may differ before a reservation is taken for
// expired while it still counts.
const clockSlack = time.Minute

// Settle corrects the charge of a token's reservation to the units that were used, if its caller is permitted to decide in
// the domain. An empty domain is any. Errors are that of permit, ErrToken, ErrExpired and those of the engine.
func (t *Tokens) Settle(ctx context.Context, engine *decide.Decider, token string, used int64, permit func(domain string) error) error {
	reservation, err := t.Open(token)
	domain := "" // for a token of nothing or of an earlier version
	if err == nil {
		domain = reservation.Domain
	}
	if denied := permit(domain); denied != nil {
		return denied
	}
	switch {
	case err != nil:
		return err
	case reservation.Units > 0 && t.Now().After(reservation.Expires().Add(clockSlack)):
		return ErrExpired
	}
	return engine.Settle(ctx, reservation, used)
}
