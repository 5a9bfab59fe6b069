package outgoing

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"example.com/sash"
)

// A Pool is credentials for one API, each with a quota of its own, such as the access tokens of a crawler. A [Call] with a
// Pool is charged to whichever credential has most room, or the first that has room, and the transport sets that credential
// on a copy of the request. A response changes the limits and the cool-down of its credential alone. A Pool is immutable and
// safe for concurrent use. A program whose credentials change makes a new Pool, and its route returns that.
//
// A credential that the API refuses, with 401 or with a 403 that another one does not get, is dropped for a minute, by all
// processes, and for longer while the API refuses it again. The request is sent with another credential if its body can be
// sent again. When all are dropped the error is [ErrCredentials].
//
// Neither results, errors and keys in the store nor a printed Pool contain a credential. The response's Request is the
// caller's own, without it.
type Pool struct {
	origin      string
	credentials []credential
	set         func(req *http.Request, credential string)
}

// A credential is one of a pool. Its name stands for it in keys.
type credential struct{ secret, name string }

// leastHMACKey is the fewest bytes of a pool's key.
const leastHMACKey = 32

// NewPool returns a pool of 1 to [sash.MaxAny] credentials for the API at origin, such as "https://api.github.com". They
// are sent nowhere else: a redirect that leads to another scheme, host or port is followed without a credential and
// without a charge, and any other request to such a place is an error.
//
// Keys in the store have the HMAC of a credential under hmacKey, at least 32 random bytes that all processes share: see
// [sash.Secret]. A nil set sends "Authorization: Bearer" and the credential. Another one sets it on the request, which is a
// copy of the caller's, and must not change where that goes:
//
//	func(req *http.Request, credential string) { req.Header.Set("X-Api-Key", credential) }
//
// The error says which argument is wrong, by its number for a credential, and never contains one.
func NewPool(origin string, hmacKey []byte, credentials []string, set func(req *http.Request, credential string)) (*Pool, error) {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New(`outgoing: the origin of a pool is a scheme and a host, such as "https://api.github.com"`)
	}
	if len(hmacKey) < leastHMACKey {
		return nil, fmt.Errorf("outgoing: the HMAC key of a pool has %d bytes; it needs at least %d random ones", len(hmacKey), leastHMACKey)
	}
	if n := len(credentials); n == 0 || n > sash.MaxAny {
		return nil, fmt.Errorf("outgoing: %d credentials; a pool has 1 to %d", n, sash.MaxAny)
	}
	p := &Pool{origin: originOf(u), set: set}
	if set == nil {
		p.set = func(req *http.Request, credential string) { req.Header.Set("Authorization", "Bearer "+credential) }
	}
	seen := make(map[string]int, len(credentials))
	for i, secret := range credentials {
		if err := checkCredential(secret); err != nil {
			return nil, fmt.Errorf("outgoing: credential %d of %d %w", i+1, len(credentials), err)
		}
		if first, ok := seen[secret]; ok {
			return nil, fmt.Errorf("outgoing: credentials %d and %d are the same", first+1, i+1)
		}
		seen[secret] = i
		p.credentials = append(p.credentials, credential{secret, sash.Secret(hmacKey, secret)})
	}
	return p, nil
}

// checkCredential returns an error for what a header field cannot hold. A line break would begin another field.
func checkCredential(secret string) error {
	if secret == "" {
		return errors.New("is empty")
	}
	if strings.TrimSpace(secret) != secret {
		return errors.New("begins or ends with white space, such as the line break of a file")
	}
	for i := range len(secret) {
		if c := secret[i]; c < ' ' || c > '~' {
			return fmt.Errorf("has the byte %#02x at position %d; only printable ASCII can be sent", c, i)
		}
	}
	return nil
}

// originOf returns a URL's scheme, host and port.
func originOf(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// sign returns a copy of the request with a credential.
func (p *Pool) sign(req *http.Request, c *credential) *http.Request {
	signed := req.Clone(req.Context())
	if signed.Header == nil {
		signed.Header = make(http.Header)
	}
	p.set(signed, c.secret)
	return signed
}

// Format prints how many credentials there are, whatever the verb.
func (p Pool) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "pool of %d credentials for %s", len(p.credentials), p.origin)
}

// A hiddenError is an error whose text had a credential. Only its text and what it is can be asked for: its parts may have
// the credential too. It is a function, so that no verb prints them.
type hiddenError struct {
	text string
	is   func(target error) bool
}

func (e *hiddenError) Error() string        { return e.text }
func (e *hiddenError) Is(target error) bool { return e.is(target) }

// leastHidden is the fewest bytes of what is replaced in an error besides the credential itself.
const leastHidden = 4

// hide returns the error without the credential, should it contain that: a transport behind this one may describe the
// request that it got. It replaces the credential and all that has it in the signed request, as they are and escaped.
func (c *credential) hide(err error, req, signed *http.Request) error {
	secrets := []string{c.secret}
	collect := func(before, after map[string][]string) {
		for name, values := range after {
			for _, value := range values {
				if slices.Contains(before[name], value) {
					continue
				}
				for _, s := range []string{value, value[strings.IndexByte(value, ' ')+1:]} { // "Basic" and the rest
					if len(s) >= leastHidden {
						secrets = append(secrets, s)
					}
				}
			}
		}
	}
	collect(req.Header, signed.Header)
	collect(req.URL.Query(), signed.URL.Query())
	var forms []string
	for _, s := range secrets {
		quoted := strconv.Quote(s)
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s), quoted[1:len(quoted)-1])
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	text := err.Error()
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, "[credential]")
	}
	if text == err.Error() {
		return err
	}
	return &hiddenError{text, func(target error) bool { return errors.Is(err, target) }}
}
