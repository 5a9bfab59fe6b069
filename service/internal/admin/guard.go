package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// A Guard identifies callers by their credentials. Create it with NewGuard. It is safe for concurrent use.
type Guard struct {
	Access
	guesses  *sash.Limiter // of wrong tokens
	sessions sessions
	cookie   string // the name of its cookie; browsers send the cookies of all ports of a host to each port
	log      throttle.Log
}

// NewGuard returns a Guard. Log receives wrong tokens, at most one line a second; nil is slog.Default.
func NewGuard(credentials Access, log *slog.Logger) *Guard {
	return &Guard{Access: credentials, guesses: newGuesses(nil), cookie: "sash_admin_" + rand.Text()[:8], log: throttle.Log{To: log}}
}

const needToken = "send the admin's token, as Authorization: Bearer TOKEN"

type callerKey struct{}

// identify refuses every request with a wrong token. For any other request it records the caller, whom by returns.
func (g *Guard) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by := g.certificate(r)
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if ok := strings.EqualFold(scheme, "Bearer"); ok && by == "" && len(g.Tokens) > 0 {
			if by, ok = g.examine(w, r, token); !ok {
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, by)))
	})
}

// by returns the name of a caller that has access, for the log, or "". Call it only on requests that identify
// has handled. A session may end while its request runs.
func (g *Guard) by(r *http.Request) string {
	if by, _ := r.Context().Value(callerKey{}).(string); by != "" {
		return by
	}
	cookie, err := r.Cookie(g.cookie)
	if err != nil {
		return ""
	}
	return g.sessions.by(cookie.Value, time.Now())
}

func (g *Guard) private(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !g.Possible():
			wire.Fail(w, http.StatusForbidden, "this is off: start sash serve with --admin-token-file or SASH_ADMIN_TOKEN, or with --admin-client-ca")
		case g.by(r) == "":
			g.unauthorized(w, r, needToken)
		default:
			next(w, r)
		}
	}
}

func (g *Guard) unauthorized(w http.ResponseWriter, r *http.Request, text string) {
	g.log.Log(slog.LevelWarn, "a request for an operator had no valid token", "path", wire.Clip(r.URL.Path), "from", r.RemoteAddr)
	w.Header().Set("WWW-Authenticate", `Bearer realm="sash admin"`)
	wire.Fail(w, http.StatusUnauthorized, text)
}

func (g *Guard) examine(w http.ResponseWriter, r *http.Request, token string) (name string, ok bool) {
	place := g.place(token)
	if wait := g.withhold(r.RemoteAddr, place > 0); wait > 0 {
		g.log.Log(slog.LevelWarn, "wrong admin tokens: none from this address is examined for a while", "from", r.RemoteAddr, "for", wait)
		w.Header().Set("Retry-After", strconv.FormatInt(wire.Seconds(wait).RoundUp(), 10))
		wire.Fail(w, http.StatusTooManyRequests, "too many wrong tokens came from this address: none is examined for now, the right one too")
		return "", false
	}
	if place == 0 {
		g.unauthorized(w, r, "the token is wrong")
		return "", false
	}
	return fmt.Sprintf("token %d", place), true
}

func (g *Guard) certificate(r *http.Request) string {
	if !g.Certificates || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return ""
	}
	cert := r.TLS.VerifiedChains[0][0]
	if len(cert.DNSNames) > 0 {
		return "certificate " + cert.DNSNames[0]
	}
	return "certificate " + cert.Subject.CommonName
}

func (g *Guard) login(w http.ResponseWriter, r *http.Request) {
	if len(g.Tokens) == 0 {
		wire.Fail(w, http.StatusForbidden, "login needs a token: start sash serve with --admin-token-file or SASH_ADMIN_TOKEN")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if err := r.ParseForm(); err != nil {
		wire.Fail(w, http.StatusBadRequest, "send a form with token")
		return
	}
	name, ok := g.examine(w, r, r.PostForm.Get("token"))
	if !ok {
		return
	}
	g.setCookie(w, r, g.sessions.begin("session of "+name, time.Now()), int(sessionLife/time.Second))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (g *Guard) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(g.cookie); err == nil {
		g.sessions.end(cookie.Value)
	}
	g.setCookie(w, r, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// setCookie sets the cookie for some seconds. A negative number deletes it.
func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: g.cookie, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
}

// MinToken is the minimum length of a token in bytes. A shorter one could be guessed.
const MinToken = 16

// Access holds the credentials of callers who may change things and see the names of users. The zero value has none.
type Access struct {
	// Tokens are the accepted secrets. There are several while clients change from one to the next.
	Tokens []string
	// Certificates means that the listener accepts trusted client certificates only. Every request then has access.
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

// place returns the position of a token in Tokens, from 1, or 0. Its duration depends only on the number of tokens.
func (a *Access) place(token string) int {
	is, place := sha256.Sum256([]byte(token)), 0
	for i, right := range a.Tokens {
		want := sha256.Sum256([]byte(right))
		place = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(is[:], want[:]), i+1, place)
	}
	return place
}

const (
	sessionLife  = 12 * time.Hour
	mostSessions = 1000 // beyond that, the session with the earliest end is closed
)

// sessions holds the sessions of browsers that logged in at this process, so that a logout invalidates every
// copy of a cookie. Sessions end with the process. The zero value has none. It is safe for concurrent use.
type sessions struct {
	mu   sync.Mutex
	open map[string]session // guarded by mu; by ID, which is the value of the cookie
}

type session struct {
	by  string // whose it is, for the log
	end time.Time
}

func (s *sessions) begin(by string, now time.Time) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= mostSessions {
		earlier := func(x, y string) int { return s.open[x].end.Compare(s.open[y].end) }
		delete(s.open, slices.MinFunc(slices.Collect(maps.Keys(s.open)), earlier))
	}
	if s.open == nil {
		s.open = make(map[string]session)
	}
	id = rand.Text()
	s.open[id] = session{by, now.Add(sessionLife)}
	return id
}

// by returns the name of the session's owner, or "" if the session has ended or is unknown.
func (s *sessions) by(id string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ok := s.open[id]
	if ok && !now.Before(open.end) {
		delete(s.open, id)
		return ""
	}
	return open.by
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

const (
	// mostGuesses is how many wrong tokens from one address are answered in any minute.
	mostGuesses = 10

	// guessBytes bounds the addresses that are remembered as waiting: at least 9,000. The guesses of further
	// addresses are not counted. If those addresses waited too, a caller with an IPv6 network could lock out
	// all operators. If only their wrong tokens waited, the answer would show which token is right.
	guessBytes = 5 << 20
)

// newGuesses returns a limiter that counts wrong tokens by address. A nil now is the wall clock. An IPv6
// address counts as its /64, and all peers of a Unix socket count as one.
func newGuesses(now func() time.Time) *sash.Limiter {
	store := memstore.New(&memstore.Options{MaxBytes: guessBytes, Now: now})
	limiter, _ := sash.New(store, nil, sash.PerMinute(mostGuesses)) // the limit is valid
	return limiter
}

// withhold returns how long callers from an address get no answer to any token, right or wrong, after
// mostGuesses wrong tokens from there within a minute. If it returns zero, the caller may learn whether its
// token was right. From is the peer's address in the form of http.Request.RemoteAddr.
//
// Compare the token first, so that simultaneous guesses get no more answers than sequential ones. Do not call
// it for a session cookie: nobody guesses a random ID, and the ID of an expired session is not a guess.
func (g *Guard) withhold(from string, right bool) time.Duration {
	ctx, key := context.Background(), access.Party(from) // a store in memory does not wait
	if !right {
		res, err := g.guesses.Allow(ctx, key)
		if err != nil { // as many other addresses wait as are remembered
			return 0
		}
		return res.RetryAfter
	}
	res, err := g.guesses.Peek(ctx, key)
	if err != nil || res.Remaining > 0 {
		return 0
	}
	return res.Limits()[0].ReleaseAfter
}
