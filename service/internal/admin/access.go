package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
)

// MinToken is the minimum length of a token in bytes. A shorter one could be guessed.
const MinToken = 16

// Access is the credentials that allow a caller to change things and to see the names of users. The zero value allows
// none.
type Access struct {
	// Tokens are the secrets of which a request has one: several while clients change from one to the next. Empty is
	// none.
	Tokens []string
	// Certificates means that the listener accepts only connections with a certificate that it trusts. Every request
	// then has access.
	Certificates bool
}

// Check returns an error if a token is too weak.
func (a *Access) Check() error {
	for i, token := range a.Tokens {
		if len(token) < MinToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			return fmt.Errorf("admin token %d must have at least %d printable ASCII characters and no spaces, such as from: openssl rand -hex 32", i+1, MinToken)
		}
	}
	return nil
}

// Possible reports whether any caller can have access.
func (a *Access) Possible() bool { return len(a.Tokens) > 0 || a.Certificates }

// place returns the place of a token among Tokens, from 1, or 0 for a wrong one. The time that it takes depends only on
// how many there are.
func (a *Access) place(token string) int {
	is, place := sha256.Sum256([]byte(token)), 0
	for i, right := range a.Tokens {
		want := sha256.Sum256([]byte(right))
		place = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(is[:], want[:]), i+1, place)
	}
	return place
}
