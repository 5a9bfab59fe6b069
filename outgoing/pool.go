package outgoing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
)

// A Pool has credentials for one API, each with its own quota, such as the access tokens of a crawler. The transport charges a [Call] with
// a Pool to the credential with the most room, or to the first with room, and sets the credential on a copy of the request. A response
// changes the limits and the cool-down of its credential alone. A Pool is immutable and safe for concurrent use. To change credentials,
// create a new Pool.
//
// All processes drop a credential for a minute when the API refuses it with 401, or with a 403 that another credential does not get.
// Repeated refusals drop it for longer. If the transport can send the body again, it sends the request with another credential. If all are
// dropped, the error is [ErrCredentials]. No result, error, key in the store, printed Pool or response's Request contains a credential.
type Pool struct {
	origin      string
	credentials []credential
	set         func(req *http.Request, credential string)
}

// A credential is one credential of a pool. Keys contain its name instead of the secret.
type credential struct{ secret, name string }

// NewPool returns a pool of 1 to [sash.MaxAny] credentials for the API at origin, such as "https://api.github.com". The transport
// sends them nowhere else: it follows a redirect to another scheme, host or port without a credential and without a charge, and
// fails other requests to another origin. An error of NewPool gives the number of an invalid credential, but not its text.
//
// Keys in the store contain the HMAC of a credential under hmacKey, at least 32 random bytes that all processes share: see
// [sash.Secret]. A nil set sends "Authorization: Bearer" and the credential. Otherwise set adds it to a copy of the request, and
// must not change the destination:
//
//	func(req *http.Request, credential string) { req.Header.Set("X-Api-Key", credential) }
func NewPool(origin string, hmacKey []byte, credentials []string, set func(req *http.Request, credential string)) (*Pool, error) {
	u, err := url.Parse(origin)
	isURL := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	if !isURL || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New(`outgoing: the origin of a pool is a scheme and a host, such as "https://api.github.com"`)
	}
	if len(hmacKey) < 32 {
		return nil, fmt.Errorf("outgoing: the HMAC key of a pool has %d bytes; it needs at least 32 random ones", len(hmacKey))
	}
	if n := len(credentials); n == 0 || n > sash.MaxAny {
		return nil, fmt.Errorf("outgoing: %d credentials; a pool has 1 to %d", n, sash.MaxAny)
	}
	p := &Pool{origin: originOf(u), set: set}
	if set == nil {
		p.set = func(req *http.Request, credential string) { req.Header.Set("Authorization", "Bearer "+credential) }
	}
	for i, secret := range credentials {
		if err := checkCredential(secret); err != nil {
			return nil, fmt.Errorf("outgoing: credential %d of %d %w", i+1, len(credentials), err)
		}
		if first := slices.Index(credentials, secret); first < i {
			return nil, fmt.Errorf("outgoing: credentials %d and %d are the same", first+1, i+1)
		}
		p.credentials = append(p.credentials, credential{secret, sash.Secret(hmacKey, secret)})
	}
	return p, nil
}

// checkCredential returns an error for text that a header field cannot hold. A line break would begin another field.
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

func originOf(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func (p *Pool) sign(req *http.Request, c *credential) *http.Request {
	signed := req.Clone(req.Context())
	if signed.Header == nil {
		signed.Header = make(http.Header)
	}
	p.set(signed, c.secret)
	return signed
}

// Format prints the number of credentials, whatever the verb.
func (p Pool) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "pool of %d credentials for %s", len(p.credentials), p.origin)
}

// A hiddenError hides an error whose text had a credential. It keeps the error in a function, whose result no verb prints.
type hiddenError struct {
	text string
	is   func(target error) bool
}

func (e *hiddenError) Error() string        { return e.text }
func (e *hiddenError) Is(target error) bool { return e.is(target) }

// hide removes the credential from an error, because the base transport may describe its request. It replaces
// the credential, and each value of the signed request that contains it, plain and escaped.
func (c *credential) hide(err error, req, signed *http.Request) error {
	secrets := []string{c.secret}
	collect := func(before, after map[string][]string) {
		for name, values := range after {
			for _, value := range values {
				if slices.Contains(before[name], value) {
					continue
				}
				for _, s := range []string{value, value[strings.IndexByte(value, ' ')+1:]} { // "Basic" and the rest
					if len(s) >= 4 { // shorter ones occur in any text
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

// firstDrop is how long a credential is dropped at its first refusal. The time grows as a cool-down does.
const firstDrop = time.Minute

// tries records the outcomes of one request's attempts with credentials of a pool.
type tries struct {
	refused []*credential // those that the API has refused for this request
	suspect *Call         // the call whose credential got a 403, which may be about the request
}

func (c *Call) with(cred *credential) Call {
	one := *c
	one.credential = cred
	one.Key = c.Key + ":" + cred.name
	one.Account = "credential:" + cred.name
	return one
}

// slotKey returns the key of a call's slots, which the credentials of a pool share.
func (c *Call) slotKey() string {
	switch {
	case c.credential != nil:
		return strings.TrimSuffix(c.Key, ":"+c.credential.name)
	case c.Account != "":
		return c.Account
	}
	return c.Key
}

// untried returns the call once for each credential that this process does not know to be dropped and that the
// API has not refused for this request. Back is the time until a dropped credential is tried again.
func (t *Transport) untried(call *Call) (calls []Call, back time.Duration) {
	for i := range call.Pool.credentials {
		one := call.with(&call.Pool.credentials[i])
		if left := t.known.coolDown(one.Account).left; left > 0 {
			back = min(cmp.Or(back, left), left)
		} else if !slices.Contains(call.tries.refused, one.credential) {
			calls = append(calls, one)
		}
	}
	return calls, cmp.Or(back, firstDrop)
}

// usableOf returns the calls whose credentials do not cool down, and the shortest cool-down of the others. If
// all credentials are dropped or have been tried, the error is [ErrCredentials].
func (t *Transport) usableOf(call *Call) (choice, *refusal, error) {
	now, out, cooling := time.Now(), choice{rises: math.MaxInt64}, &refusal{}
	calls, back := t.untried(call)
	if len(calls) == 0 {
		cause := fmt.Errorf("%w (%d)", ErrCredentials, len(call.Pool.credentials))
		return out, nil, &CoolDownError{Key: call.Key, RetryAfter: back, Cause: cause}
	}
	for _, one := range calls {
		whole := one.subjects()[0]
		limits, wait, rises := t.known.apply(whole, one.Share, now)
		if wait = max(wait, t.known.coolDown(one.Key).left); wait > 0 {
			if cooling.wait == 0 || wait < cooling.wait {
				cooling.key, cooling.wait = one.Key, wait
			}
			continue
		}
		if n := len(out.subjects); n > 0 && slices.Equal(limits, out.subjects[n-1].Limits) {
			limits = out.subjects[n-1].Limits // the limiter checks equal limits once
		}
		whole.Limits = limits
		out.calls, out.subjects, out.rises = append(out.calls, one), append(out.subjects, whole), min(out.rises, rises)
	}
	return out, cooling, nil
}

// uncounted returns the call with any usable credential, for a request that is sent although the store fails.
func (t *Transport) uncounted(call Call) (Call, error) {
	if call.Pool == nil {
		return call, nil
	}
	choice, cooling, err := t.usableOf(&call)
	switch {
	case err != nil:
		return call, err
	case len(choice.calls) == 0:
		return call, cooling.because(nil)
	}
	return choice.calls[rand.IntN(len(choice.calls))], nil
}

// denied reports whether a response refuses the credential: a 401, or a 403 that does not refuse because of a limit.
func (c *Call) denied(res *http.Response, wanted pause) bool {
	return c.Pool != nil && !wanted.refused && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden)
}

// another drops a credential that the API refuses, and reports whether to send the request with another one. A 403 may be about the
// request: if another credential gets one too, neither is dropped. If the request cannot be sent again, its credential is dropped at once.
func (t *Transport) another(req *http.Request, used Call, res *http.Response, wanted pause) bool {
	if used.Pool == nil {
		return false
	}
	tries, dropped := used.tries, pause{length: firstDrop, guessed: true} // in all processes
	if !used.denied(res, wanted) {
		if tries.suspect != nil && !wanted.refused && res.StatusCode < http.StatusInternalServerError {
			t.coolDown(req, tries.suspect.Account, dropped) // another credential was served
		}
		return false
	}
	if res.StatusCode == http.StatusForbidden && tries.suspect != nil {
		return false
	}
	tries.refused = append(tries.refused, used.credential)
	left, _ := t.untried(&used)
	again := resendable(req) && len(left) > 0
	if res.StatusCode == http.StatusForbidden && again {
		tries.suspect = &used
	} else {
		t.coolDown(req, used.Account, dropped)
	}
	return again
}

// resendable reports whether a refused request can be sent again. Its method does not matter, because the API did nothing.
func resendable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}
