package envoy

import (
	"net/url"
	"strings"
)

// redis puts the variables of Redis into one URL.
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
	if auth := r.env("REDIS_AUTH"); auth != "" {
		user, password, both := strings.Cut(auth, ":")
		if !both {
			user, password = "", auth
		}
		u.User = url.UserPassword(user, password)
	}
	if size := r.env("REDIS_POOL_SIZE"); size != "" {
		query.Set("pool_size", size)
	}
	switch kind := strings.ToLower(r.text("REDIS_TYPE", "single")); kind {
	case "single":
		if !strings.EqualFold(r.text("REDIS_SOCKET_TYPE", "unix"), "tcp") {
			u.Scheme, u.Path = "unix", addrs
		} else {
			u.Host = addrs
		}
	case "sentinel":
		master, sentinels, _ := strings.Cut(addrs, ",")
		u.Scheme += "+sentinel"
		u.Host, u.Path = sentinels, "/"+master
		if auth := r.env("REDIS_SENTINEL_AUTH"); auth != "" {
			user, password, both := strings.Cut(auth, ":")
			if !both {
				user, password = "", auth
			}
			query.Set("sentinel_password", password)
			if user != "" {
				query.Set("sentinel_username", user)
			}
		}
	case "cluster":
		u.Scheme += "+cluster"
		u.Host = addrs
	default:
		r.fail("REDIS_TYPE=%s: use SINGLE, SENTINEL or CLUSTER", kind)
	}
	u.RawQuery = query.Encode()
	return u.String()
}
