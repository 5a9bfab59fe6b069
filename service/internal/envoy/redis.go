package envoy

import (
	"cmp"
	"net/url"
	"os"
	"strconv"
	"strings"
)

func (r *reader) redis() string {
	if backend := r.text("BACKEND_TYPE", "redis"); !strings.EqualFold(backend, "redis") {
		r.fail("BACKEND_TYPE=%s is not supported: use redis", backend)
		return ""
	}
	addrs := r.text("REDIS_URL", "/var/run/nutcracker/ratelimit.sock")
	u := url.URL{Scheme: "redis"}
	query := url.Values{}
	if r.boolean("REDIS_TLS") {
		u.Scheme = "rediss"
		for name, parameter := range map[string]string{
			"REDIS_TLS_CACERT": "tls_ca", "REDIS_TLS_CLIENT_CERT": "tls_cert", "REDIS_TLS_CLIENT_KEY": "tls_key",
		} {
			if file := r.env(name); file != "" {
				query.Set(parameter, file)
			}
		}
		if r.boolean("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION") {
			query.Set("skip_verify", "true")
		}
	}
	if size := r.env("REDIS_POOL_SIZE"); size != "" {
		if _, err := strconv.Atoi(size); err != nil {
			r.fail("REDIS_POOL_SIZE=%s: use a number", size)
		}
		query.Set("pool_size", size)
	}
	var at servers
	switch kind := strings.ToLower(r.text("REDIS_TYPE", "single")); kind {
	case "single":
		if r.overTCP(addrs) {
			at = r.servers(addrs)
			u.Host, u.Path = at.hosts, at.db
		} else {
			u.Scheme, u.Path = "unix", addrs
		}
	case "sentinel":
		master, sentinels, _ := strings.Cut(addrs, ",")
		u.Scheme += "+sentinel"
		of := r.servers(sentinels)
		u.Host, u.Path = of.hosts, "/"+master
		if user, password := userOf(r.env("REDIS_SENTINEL_AUTH"), of.user, of.password); password != "" {
			query.Set("sentinel_password", password)
			if user != "" {
				query.Set("sentinel_username", user)
			}
		}
	case "cluster":
		u.Scheme += "+cluster"
		at = r.servers(addrs)
		u.Host = at.hosts
	default:
		r.fail("REDIS_TYPE=%s: use SINGLE, SENTINEL or CLUSTER", kind)
	}
	r.authenticate(&u, at.user, at.password)
	u.RawQuery = query.Encode()
	return u.String()
}

// overTCP reports whether REDIS_URL names a server rather than the path of a socket.
func (r *reader) overTCP(addrs string) bool {
	network, path := strings.ToLower(r.text("REDIS_SOCKET_TYPE", "unix")), strings.HasPrefix(addrs, "/")
	switch {
	case strings.HasPrefix(addrs, scheme):
		return true
	case network != "tcp" && network != "unix":
		r.fail("REDIS_SOCKET_TYPE=%s: use tcp or unix", network)
	case network == "tcp" && path && r.env("REDIS_URL") != "": // without it a flag may name the server
		r.fail("REDIS_URL has no server, and REDIS_SOCKET_TYPE is tcp: use host:port")
	case network == "unix" && !path:
		r.fail("REDIS_URL has no path of a socket, and REDIS_SOCKET_TYPE is unix, its default: use tcp for host:port")
	}
	return network == "tcp"
}

// scheme begins the servers of REDIS_URL that are URLs.
const scheme = "redis://"

type servers struct {
	hosts              string // separated by commas
	user, password, db string // from the first URL that has them; db begins with a slash
}

func (r *reader) servers(addrs string) (all servers) {
	var hosts []string
	for addr := range strings.SplitSeq(addrs, ",") {
		if !strings.HasPrefix(addr, scheme) {
			hosts = append(hosts, addr)
			continue
		}
		u, err := url.Parse(addr)
		if err != nil || u.Host == "" {
			r.fail("REDIS_URL has a URL without a server: use redis://[user:password@]host:port[/db]") // it may have a password
			continue
		}
		hosts = append(hosts, u.Host)
		query := u.Query()
		password, _ := u.User.Password()
		all.user = cmp.Or(all.user, u.User.Username(), query.Get("username"))
		all.password = cmp.Or(all.password, password, query.Get("password"))
		if db := cmp.Or(strings.Trim(u.Path, "/"), query.Get("db")); db != "" {
			all.db = cmp.Or(all.db, "/"+db)
		}
	}
	all.hosts = strings.Join(hosts, ",")
	return all
}

// authenticate adds the user and the password of Redis. Those in the variables precede those in a URL.
func (r *reader) authenticate(u *url.URL, user, password string) {
	auth := r.env("REDIS_AUTH")
	if file := r.env("REDIS_AUTH_FILE"); file != "" {
		text, err := os.ReadFile(file)
		switch {
		case auth != "":
			r.fail("REDIS_AUTH_FILE is set, and REDIS_AUTH too: set one of them")
		case err != nil:
			r.fail("REDIS_AUTH_FILE: %v", err)
		}
		auth = strings.TrimRight(string(text), "\r\n")
	}
	if user, password = userOf(auth, user, password); user != "" || password != "" {
		u.User = url.UserPassword(user, password)
	}
}

// userOf parses user:password, or a password alone. It returns the given user and password for missing parts.
func userOf(auth, user, password string) (string, string) {
	if auth == "" {
		return user, password
	}
	if of, secret, both := strings.Cut(auth, ":"); both {
		return of, secret
	}
	return user, auth
}
