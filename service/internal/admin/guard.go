package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// A Guard identifies callers by the credentials of their requests. It is safe for concurrent use. Make it with
// NewGuard.
type Guard struct {
	Access
	guesses  *guesses
	sessions sessions
	cookie   string // the name of its cookie; browsers send those of all ports of a host to each
	log      throttle.Log
}

// NewGuard returns a Guard. Log receives wrong tokens, at most one a second; nil is slog.Default.
func NewGuard(credentials Access, log *slog.Logger) *Guard {
	return &Guard{Access: credentials, guesses: newGuesses(nil), cookie: "sash_admin_" + rand.Text()[:8], log: throttle.Log{To: log}}
}

const needToken = "send the admin's token, as Authorization: Bearer TOKEN"

type callerKey struct{}

// identify refuses a request with a wrong token, whatever it asks for, and notes the caller of every other one for by.
func (g *Guard) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by := g.certificate(r)
		if token, ok := bearer(r); ok && by == "" && len(g.Tokens) > 0 {
			if by, ok = g.examine(w, r, token); !ok {
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, by)))
	})
}

// by returns the name of a caller that has access, for the log, or "". It must have passed identify. A session may end
// while its request goes on.
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

// private serves callers that have access.
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

// examine returns the name of a token, or answers the request.
func (g *Guard) examine(w http.ResponseWriter, r *http.Request, token string) (name string, ok bool) {
	place := g.place(token)
	if wait := g.guesses.withhold(r.RemoteAddr, place > 0); wait > 0 {
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

// bearer returns the token of a request, and whether it has one.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

// certificate returns the name of a caller by its certificate, or "".
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

// login exchanges the token in a form for a cookie, for browsers.
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

// logout ends the session of a cookie, for all who have a copy of it.
func (g *Guard) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(g.cookie); err == nil {
		g.sessions.end(cookie.Value)
	}
	g.setCookie(w, r, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// setCookie sets the cookie for some seconds; negative deletes it.
func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: g.cookie, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
}
