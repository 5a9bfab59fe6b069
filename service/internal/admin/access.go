package admin

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/wire"
)

// MinToken is the minimum length of a token in bytes. A shorter one could be guessed.
const MinToken = 16

// Access is the credentials that allow a caller to change things and to see the names of users. The zero value allows
// none.
type Access struct {
	// Token is the secret that a request brings. Empty is none.
	Token string
	// Certificates means that the listener accepts only connections with a certificate that it trusts. Every request
	// then has access.
	Certificates bool
}

// Check returns an error if the token is too weak.
func (a *Access) Check() error {
	if a.Token != "" && (len(a.Token) < MinToken || strings.ContainsFunc(a.Token, func(c rune) bool { return c <= ' ' || c >= 0x7f })) {
		return fmt.Errorf("the admin's token must have at least %d printable ASCII characters and no spaces, such as from: openssl rand -hex 32", MinToken)
	}
	return nil
}

func (a *Access) possible() bool { return a.Token != "" || a.Certificates }

// caller returns the authenticated caller's name, for the log, or "" if unknown.
func (a *Access) caller(r *http.Request) string {
	if a.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert := r.TLS.VerifiedChains[0][0]
		name := cert.Subject.CommonName
		if len(cert.DNSNames) > 0 {
			name = cert.DNSNames[0]
		}
		return "certificate " + name
	}
	if a.Token == "" {
		return ""
	}
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") && a.right(token) {
		return "token"
	}
	if cookie, err := r.Cookie(cookieName); err == nil && a.live(cookie.Value, time.Now()) {
		return "session"
	}
	return ""
}

// right reports whether a token is the right one, in constant time.
func (a *Access) right(token string) bool {
	is, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.Token))
	return a.Token != "" && subtle.ConstantTimeCompare(is[:], want[:]) == 1
}

const (
	cookieName = "sash_admin"
	session    = 12 * time.Hour
)

// session returns the value of a cookie: its end, signed with the token, which it does not disclose. Any instance with
// the token accepts it.
func (a *Access) session(end time.Time) string {
	text := strconv.FormatInt(end.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(a.Token))
	mac.Write([]byte("sash admin session until " + text))
	return text + "." + hex.EncodeToString(mac.Sum(nil))
}

// live reports whether a cookie was signed with the token and has not expired.
func (a *Access) live(value string, now time.Time) bool {
	text, _, _ := strings.Cut(value, ".")
	end, err := strconv.ParseInt(text, 10, 64)
	return err == nil && now.Unix() < end && hmac.Equal([]byte(value), []byte(a.session(time.Unix(end, 0))))
}

// private serves authenticated callers only.
func (h *handler) private(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !h.Access.possible():
			wire.Fail(w, http.StatusForbidden, "this is off: start sash serve with --admin-token-file or SASH_ADMIN_TOKEN, or with --admin-client-ca")
		case h.Access.caller(r) == "":
			h.logUnauthorized(r)
			w.Header().Set("WWW-Authenticate", `Bearer realm="sash admin"`)
			wire.Fail(w, http.StatusUnauthorized, "send the admin's token, as Authorization: Bearer TOKEN")
		default:
			next(w, r)
		}
	}
}

// near serves callers on this machine, and others as private does.
func (h *handler) near(next http.HandlerFunc) http.HandlerFunc {
	private := h.private(next)
	return func(w http.ResponseWriter, r *http.Request) {
		if local(r) {
			next(w, r)
			return
		}
		private(w, r)
	}
}

// local reports whether a request comes from this machine and has a host name of this machine: a page of another site,
// whose name can be made to resolve to this machine, has its own.
func local(r *http.Request) bool {
	if on, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && on.Network() == "unix" {
		return true // the permissions of the file decide
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback() && ownName(r.Host)
}

func ownName(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return name == "" || name == "localhost" || net.ParseIP(name) != nil
}

// login exchanges the token in a form for a cookie, for browsers.
func (h *handler) login(w http.ResponseWriter, r *http.Request) {
	if h.Access.Token == "" {
		wire.Fail(w, http.StatusForbidden, "login needs a token: start sash serve with --admin-token-file or SASH_ADMIN_TOKEN")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if err := r.ParseForm(); err != nil {
		wire.Fail(w, http.StatusBadRequest, "send a form with token")
		return
	}
	if !h.Access.right(r.PostForm.Get("token")) {
		h.logUnauthorized(r)
		wire.Fail(w, http.StatusUnauthorized, "the token is wrong")
		return
	}
	h.cookie(w, r, h.Access.session(time.Now().Add(session)), session)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (h *handler) logout(w http.ResponseWriter, r *http.Request) {
	h.cookie(w, r, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (h *handler) cookie(w http.ResponseWriter, r *http.Request, value string, lives time.Duration) {
	seconds := int(lives / time.Second)
	if lives < 0 {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
}

// logUnauthorized logs a request without a valid token, at most one a second.
func (h *handler) logUnauthorized(r *http.Request) {
	h.unauthorized.Log(slog.LevelWarn, "a request to the admin port had no valid token", "path", r.URL.Path, "from", r.RemoteAddr)
}
