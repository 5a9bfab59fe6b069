package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/middleware"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

const forwardAuthPath = "/v1/forward-auth"

// forwardedFor is one of the headers in which a proxy describes its client's request. Any caller can write these headers.
const forwardedFor = "X-Forwarded-For"

var errDirect = errors.New("there is no X-Forwarded header: the proxy has to send one, such as " + forwardedFor +
	", because a page in a browser cannot")

var errRepeated = errors.New("which of its values counts is not known")

// forwardAuth answers a proxy that asks whether to let a request through: 200, or the refusal for the client. The
// URL's parameters are the proxy's configuration. Errors in it are logged, because nginx does not show the answer.
func (h *Handler) forwardAuth(w http.ResponseWriter, r *http.Request) {
	question, err := ParseQuestion(r.URL.RawQuery)
	var parts []decide.Part
	if err == nil {
		if denied := h.opts.Access.Check(r.Context(), question.Domain, access.Decide); denied != nil {
			access.Fail(w, denied)
			return
		}
		parts, err = h.ask(question, r)
	}
	if err != nil {
		if !errors.Is(err, errRepeated) && !errors.Is(err, httplimit.ErrBadKey) { // any client can cause these errors
			h.log.Log(slog.LevelError, "a proxy asks for forward-auth wrongly, and its clients get an error", "error", err)
		}
		wire.Fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	answers, err := h.decider.Decide(ctx, decide.Request{Domain: question.Domain, Parts: parts, Lenient: true})
	if err != nil {
		h.fail(w, r, err, &wire.Undecided)
		return
	}
	denial := question.Disclose(answers, w.Header())
	if denial == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	denial.Write(w)
}

func (h *Handler) ask(q *Question, r *http.Request) ([]decide.Part, error) {
	// A page of another origin cannot send such a header without a preflight request, which this handler
	// refuses. Without the header, the page could charge any subject.
	if !slices.ContainsFunc(slices.Collect(maps.Keys(r.Header)), func(name string) bool { return strings.HasPrefix(name, "X-Forwarded-") }) {
		return nil, errDirect
	}
	if _, err := h.decider.Config().Find(q.Domain, nil); err != nil { // there is no such domain
		return nil, err
	}
	return q.Parts(r.Header)
}

// Disclose combines the answers into what the client learns, without limits that do not bind. It sets the
// fields, and returns the refusal or nil. A refusal's retry time is zero if waiting does not help.
func (q *Question) Disclose(answers []decide.Answer, fields http.Header) *httplimit.Denial {
	var limits []sash.LimitResult
	denial, refused := &httplimit.Denial{Status: q.deny}, false
	for i := range answers {
		a := &answers[i]
		if a.Soft() {
			continue
		}
		refused, denial.Result.Blocked = refused || a.Refused, denial.Result.Blocked || a.Blocked // for too many refusals
		switch {
		case a.Source == sash.FromPolicy: // nothing was counted
			continue
		case a.BannedBy != nil: // a client cannot keep to a ban: a policy without units and window would be malformed
			denial.RetryAfter = max(denial.RetryAfter, a.RefusedBy.RetryAfter)
			denial.Policies = append(denial.Policies, a.RefusedBy.Limit.Name)
			continue
		}
		for _, l := range a.Limits {
			if len(answers) > 1 {
				l.Limit.Name = q.descriptors[i].name() + ":" + l.Limit.Name
			}
			if l.Refused {
				denial.RetryAfter = max(denial.RetryAfter, l.RetryAfter)
				denial.Policies = append(denial.Policies, l.Limit.Name)
			}
			limits = append(limits, l)
		}
	}
	last := slices.MaxFunc(answers, func(a, b decide.Answer) int { return a.At.Compare(b.At) }).At
	if last.IsZero() { // the store decided nothing
		last = time.Now()
	}
	q.Fields.Set(fields, limits, last)
	if !refused {
		return nil
	}
	if denial.RetryAfter > 0 {
		fields.Set("Retry-After", strconv.FormatInt(wire.Seconds(denial.RetryAfter).RoundUp(), 10))
	}
	return denial
}

// A Question is the configuration of forward-auth in the URL. It is the same for all clients.
type Question struct {
	Domain      string
	descriptors []descriptor
	deny        int               // the status of a refusal
	Fields      httplimit.Dialect // of the RateLimit fields
	path        httplimit.PathFold
}

// A descriptor lists the sources of a request's entries, one for each level.
type descriptor []source

// name returns the descriptor's name in the fields: its keys in the form of the parameter.
func (d descriptor) name() string {
	keys := make([]string, len(d))
	for i, s := range d {
		keys[i] = s.key
	}
	return strings.Join(keys, ",")
}

// A source is the key of an entry and the origin of its value.
type source struct {
	key   string
	value func(*proxied) (string, error)
}

// words maps the words of a descriptor to values from a proxy's headers.
var words = map[string]func(*proxied) (string, error){
	"host": (*proxied).host, "path": (*proxied).path, "remote_address": (*proxied).remoteAddress,
	"method": func(p *proxied) (string, error) { return p.required("X-Forwarded-Method") },
}

// ParseQuestion reads the parameters: domain, descriptor (once or more), deny, fields and path.
func ParseQuestion(query string) (*Question, error) {
	given, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL: %w", err)
	}
	q := &Question{deny: http.StatusTooManyRequests, path: httplimit.KeepCase} // rules may have capital letters
	for _, name := range slices.Sorted(maps.Keys(given)) {
		values := given[name]
		if name != "descriptor" && len(values) > 1 {
			return nil, fmt.Errorf("the parameter %s is there %d times: give it once", wire.Clip(name), len(values))
		}
		switch name {
		case "domain":
			q.Domain = values[0]
		case "deny": // nginx accepts only 401 and 403
			if !slices.Contains([]string{"401", "403", "429"}, values[0]) {
				return nil, fmt.Errorf("deny=%s: it is 401, 403 or 429", wire.Clip(values[0]))
			}
			q.deny, _ = strconv.Atoi(values[0])
		case "fields":
			err = q.Fields.UnmarshalText([]byte(values[0]))
		case "path":
			err = q.path.UnmarshalText([]byte(values[0]))
		case "descriptor":
			for _, text := range values {
				d, err := parseDescriptor(text)
				if err != nil {
					return nil, err
				}
				q.descriptors = append(q.descriptors, d)
			}
		default:
			return nil, fmt.Errorf("unknown parameter %s: there are domain, descriptor, deny, fields and path", wire.Clip(name))
		}
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", name, wire.Clip(values[0]), err)
		}
	}
	switch {
	case q.Domain == "":
		return nil, errors.New("the parameter domain is missing: ask for /v1/forward-auth?domain=demo&descriptor=remote_address")
	case len(q.descriptors) == 0:
		return nil, errors.New("the parameter descriptor is missing: it says what a request is counted by, such as descriptor=remote_address")
	case len(q.descriptors) > sash.MaxSubjects:
		return nil, fmt.Errorf("%d descriptors: one decision spans at most %d", len(q.descriptors), sash.MaxSubjects)
	}
	return q, nil
}

// parseDescriptor reads entries between commas: a word for what the proxy sends, header:NAME, cookie:NAME, or KEY=VALUE.
func parseDescriptor(text string) (descriptor, error) {
	entries := strings.Split(text, ",")
	if len(entries) > wire.MaxEntries {
		return nil, fmt.Errorf("a descriptor with %d entries: there may be at most %d", len(entries), wire.MaxEntries)
	}
	d := make(descriptor, len(entries))
	for i, entry := range entries {
		key, fixed, isFixed := strings.Cut(entry, "=")
		header, isHeader := strings.CutPrefix(entry, "header:")
		cookie, isCookie := strings.CutPrefix(entry, "cookie:")
		switch {
		case words[entry] != nil:
			d[i] = source{entry, words[entry]}
		case isHeader && header != "":
			d[i] = source{strings.ToLower(header), func(p *proxied) (string, error) { return p.sole(header) }}
		case isCookie && cookie != "" && !isFixed: // the case of a cookie's name is significant
			d[i] = source{cookie, func(p *proxied) (string, error) { return p.cookie(cookie) }}
		case isFixed && key != "" && !isHeader && !isCookie:
			d[i] = source{key, func(*proxied) (string, error) { return fixed, nil }}
		default:
			return nil, fmt.Errorf("descriptor=%s: the entry %s is none: it is %s, header:NAME, cookie:NAME, or KEY=VALUE for a fixed one",
				wire.Clip(text), strconv.Quote(wire.Clip(entry)), strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
	}
	return d, nil
}

// A proxied is a client's request as its proxy describes it.
type proxied struct {
	header http.Header
	fold   httplimit.PathFold // of its path
}

func (p *proxied) host() (string, error) {
	host, err := p.required("X-Forwarded-Host")
	return strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), ".")), err
}

// cookie returns the value of a cookie. A cookie that occurs twice is an error, like a header.
func (p *proxied) cookie(name string) (string, error) {
	switch found := (&http.Request{Header: p.header}).CookiesNamed(name); len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0].Value, nil
	default:
		return "", fmt.Errorf("the cookie %s is there %d times: %w", wire.Clip(name), len(found), errRepeated)
	}
}

// Parts returns the descriptors of a request. An entry whose header is missing has an empty value: such
// requests count together, so that leaving a header out does not evade a limit.
func (q *Question) Parts(header http.Header) ([]decide.Part, error) {
	p := &proxied{header, q.path}
	parts := make([]decide.Part, len(q.descriptors))
	for i, d := range q.descriptors {
		entries := make([]config.Entry, len(d))
		for j, s := range d {
			value, err := s.value(p)
			if err != nil {
				return nil, err
			}
			// A key with invalid UTF-8 could not occur in the configuration, metrics and JSON either.
			entries[j] = config.Entry{Key: s.key, Value: strings.ToValidUTF8(value, "\uFFFD")}
		}
		parts[i] = decide.Part{Entries: entries, Cost: 1, ByRule: true}
	}
	return parts, nil
}

// sole returns the value of a header. A header that occurs twice is an error, because the application may read either value.
func (p *proxied) sole(name string) (string, error) {
	if values := p.header.Values(name); len(values) > 1 {
		return "", fmt.Errorf("the header %s is there %d times: %w", wire.Clip(name), len(values), errRepeated)
	}
	return p.header.Get(name), nil
}

func (p *proxied) required(name string) (string, error) {
	value, err := p.sole(name)
	if err == nil && value == "" {
		err = fmt.Errorf("the header %s is missing: the proxy has to send it", name)
	}
	return value, err
}

var peer, _ = httplimit.NewClientAddress(nil)

// remoteAddress returns the address that the proxy itself saw, the last one in the header: the client wrote
// everything to its left. For IPv6 it returns the prefix, because one client has many addresses.
func (p *proxied) remoteAddress() (string, error) {
	lines := p.header.Values(forwardedFor)
	if len(lines) == 0 {
		return "", errors.New("the header " + forwardedFor + " is missing: the proxy has to send the client's address there")
	}
	last := lines[len(lines)-1]
	last = strings.Trim(last[strings.LastIndexByte(last, ',')+1:], " \t")
	addr, err := peer.Addr(&http.Request{RemoteAddr: last})
	if err != nil {
		return "", fmt.Errorf("the header %s ends in %q, which is no address: the proxy has to send the client's there", forwardedFor, wire.Clip(last))
	}
	return middleware.Client(addr, middleware.DefaultIPv6Bits), nil
}

// path returns the folded path without the query, so that all spellings of a path are the same.
func (p *proxied) path() (string, error) {
	uri, err := p.required("X-Forwarded-Uri")
	if err != nil {
		return "", err
	}
	if scheme, rest, absolute := strings.Cut(uri, "://"); absolute && !strings.ContainsAny(scheme, "/?#") {
		_, rest, _ = strings.Cut(rest, "/")
		uri = rest
	}
	uri, _, _ = strings.Cut(uri, "?")
	uri, _, fragment := strings.Cut(uri, "#")
	if fragment && p.fold != httplimit.CleanOnly { // a server may read on after the fragment's sign
		return "", fmt.Errorf("%w: the path has a fragment", httplimit.ErrBadKey)
	}
	return p.fold.Fold(uri)
}
