package redisclient

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Forms describes the URLs that New accepts, for messages and help texts.
const Forms = "redis://[user:password@]host:port[/db], redis+sentinel://[user:password@]host:port,host:port/primary[/db], " +
	"redis+cluster://[user:password@]host:port,host:port, each with rediss in place of redis for TLS, unix:///path/to/socket, or host:port"

// Kinds of deployment.
type form int

const (
	single form = iota
	sentinel
	cluster
)

// A target is a parsed URL.
type target struct {
	form   form
	addrs  []string // of Sentinels or of nodes
	master string
	opts   *redis.Options // user, password, database and parameters
	tls    *tls.Config    // nil without TLS

	sentinelUser, sentinelPassword string
}

// String returns the address for messages, without user and password.
func (t *target) String() string {
	switch t.form {
	case sentinel:
		return t.master + " of sentinel " + strings.Join(t.addrs, ",")
	case cluster:
		return "cluster " + strings.Join(t.addrs, ",")
	default:
		return t.opts.Addr
	}
}

func parse(given string) (*target, error) {
	if given == "" {
		return nil, errors.New("the Redis address is empty: use " + Forms)
	}
	text := given
	if !strings.Contains(text, "://") {
		if host, port, err := net.SplitHostPort(text); err != nil || host == "" && port == "" {
			return nil, errors.New(describe(given) + "is not a Redis address: use " + Forms)
		}
		text = "redis://" + text
	}
	wrong := errors.New(describe(given) + "is not a Redis URL: use " + Forms)
	scheme, rest, _ := strings.Cut(text, "://")
	base, kind, multiple := strings.Cut(scheme, "+")
	t := &target{form: map[string]form{"sentinel": sentinel, "cluster": cluster}[kind]}
	if multiple && (t.form == single || base != "redis" && base != "rediss") {
		return nil, wrong
	}
	// The URL parser does not support a list of hosts, so it gets only the first.
	if multiple {
		authority, after := rest, ""
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			authority, after = rest[:i], rest[i:]
		}
		at := strings.LastIndex(authority, "@") + 1
		for host := range strings.SplitSeq(authority[at:], ",") {
			addr, ok := hostPort(host, map[form]string{sentinel: "26379", cluster: "6379"}[t.form])
			if !ok {
				return nil, wrong
			}
			t.addrs = append(t.addrs, addr)
		}
		text = base + "://" + authority[:at] + "localhost" + after
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, wrong
	}
	if t.form == sentinel {
		master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		if master == "" {
			return nil, errors.New(describe(given) + "does not name the primary that Sentinel watches: use redis+sentinel://host:port,host:port/primary[/db]")
		}
		t.master, u.Path, u.RawPath = master, "/"+db, ""
	}
	if t.form == cluster && strings.Trim(u.Path, "/0") != "" {
		return nil, errors.New(describe(given) + "names a database, but a Redis Cluster has only one: remove it")
	}
	query := u.Query()
	files := tlsFiles{take(query, "tls_ca"), take(query, "tls_cert"), take(query, "tls_key")}
	if t.form == sentinel {
		t.sentinelUser, t.sentinelPassword = take(query, "sentinel_username"), take(query, "sentinel_password")
	}
	u.RawQuery = query.Encode()
	if t.opts, err = redis.ParseURL(u.String()); err != nil {
		return nil, wrong
	}
	if t.form != single && t.opts.TLSConfig != nil {
		t.opts.TLSConfig.ServerName = "" // each node has its own
	}
	if t.tls, err = files.config(t.opts.TLSConfig); err != nil {
		return nil, err
	}
	return t, nil
}

// take removes a parameter and returns it.
func take(query url.Values, name string) string {
	value := query.Get(name)
	query.Del(name)
	return value
}

// hostPort parses a host with an optional port.
func hostPort(text, port string) (string, bool) {
	u, err := url.Parse("redis://" + text)
	if err != nil || u.Hostname() == "" || u.Host != text {
		return "", false
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port), true
}

// describe returns an invalid URL for messages, unless it might contain a password.
func describe(url string) string {
	if strings.Contains(url, "@") || strings.Contains(url, "password") {
		return "what was given "
	}
	return `"` + url + `" `
}
