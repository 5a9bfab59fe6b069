package httpapi

import (
	"bytes"
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

// maxToken bounds a token. One with the longest key and the most limits takes a quarter of it, and a long name of a
// domain has room.
const maxToken = 8192

// encoding is base64url in which every token has one form.
var encoding = base64.RawURLEncoding.Strict()

// errToken means that a token was not sealed with this key.
var errToken = errors.New("the token is not valid here: it was changed, or given by an instance with another SASH_TOKEN_KEY")

// tokens turns reservations into texts for clients, and back. Anyone with such a text can read it: it holds the subject of
// the request and its limits. It cannot be made or changed without the key, because a forged one would give back units
// that were never charged.
//
// The first key seals and all keys open, so that a fleet changes keys without losing a reservation.
//
// The form is the reservation as JSON and its HMAC-SHA-256, each in base64url, with a dot between them.
type tokens struct {
	keys [][]byte
}

// newTokens takes a random key if there is none.
func newTokens(keys ...[]byte) tokens {
	if len(keys) == 0 {
		keys = [][]byte{make([]byte, sha256.Size)}
		_, _ = rand.Read(keys[0]) // never fails
	}
	return tokens{keys}
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
	Lease      time.Duration  `json:"e,omitempty"`
}

func (t tokens) seal(r *decide.Reservation) string {
	var s sealed
	if r.Units > 0 {
		s = sealed{
			Domain: r.Domain, Key: r.Key, Units: r.Units, At: r.At.UnixMicro(), Delay: r.Delay, Source: r.Source, ID: r.ID, Instance: r.Instance,
			Algorithm: r.Policy.Algorithm, Resolution: r.Policy.Resolution, Global: r.Place.Global, Lease: r.Place.Lease,
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

// open returns what was sealed, or errToken.
func (t tokens) open(token string) (*decide.Reservation, error) {
	if strings.ContainsAny(token, "\r\n") { // which package base64 overlooks
		return nil, errToken
	}
	first, second, _ := strings.Cut(token, ".")
	payload, err := encoding.DecodeString(first)
	given, err2 := encoding.DecodeString(second)
	ours := func(key []byte) bool { return hmac.Equal(given, mac(key, payload)) }
	if err != nil || err2 != nil || !slices.ContainsFunc(t.keys, ours) {
		return nil, errToken
	}
	var s sealed
	if json.Unmarshal(payload, &s) != nil {
		return nil, errToken // of another version
	}
	if s.Units == 0 {
		return &decide.Reservation{}, nil
	}
	limits := make([]sash.Limit, len(s.Limits))
	for i, text := range s.Limits {
		if limits[i], err = sash.ParseLimit(text); err != nil {
			return nil, errToken
		}
	}
	policy, err := sash.NewPolicy(&sash.Options{Algorithm: s.Algorithm, Resolution: s.Resolution}, limits...)
	if err != nil {
		return nil, errToken
	}
	return &decide.Reservation{
		Domain: s.Domain, Key: s.Key, Units: s.Units, At: time.UnixMicro(s.At), Delay: s.Delay, Policy: policy, Source: s.Source, ID: s.ID, Instance: s.Instance,
		Place: config.Place{Global: s.Global, Lease: s.Lease},
	}, nil
}

func mac(key, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("sash reservation 1\n"))
	mac.Write(payload)
	return mac.Sum(nil)
}
