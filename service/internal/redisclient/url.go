package redisclient

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/rueidisstore"
)

// Forms describes the URLs that New accepts, for messages and help texts.
const Forms = "redis://[user:password@]host:port[/db], redis+sentinel://[user:password@]host:port,host:port/primary[/db], " +
	"redis+cluster://[user:password@]host:port,host:port, each with rediss in place of redis for TLS, unix:///path/to/socket, or host:port"

type form int

const (
	single form = iota
	sentinel
	cluster
)

type target struct {
	form    form
	network string   // tcp or unix
	addrs   []string // of the server, of Sentinels or of nodes
	master  string
	tls     *tls.Config // nil without TLS

	user, password                 string
	sentinelUser, sentinelPassword string
	db                             int

	dial, read time.Duration // zero is the default
	resp2      bool
	name       string // of the client
	pool       int    // zero is the default
}

// String returns the address for messages, without user and password.
func (t *target) String() string {
	switch t.form {
	case sentinel:
		return t.master + " of sentinel " + strings.Join(t.addrs, ",")
	case cluster:
		return "cluster " + strings.Join(t.addrs, ",")
	default:
		return t.addrs[0]
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
	t := &target{form: map[string]form{"sentinel": sentinel, "cluster": cluster}[kind], network: "tcp"}
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
	if err != nil || base != "redis" && base != "rediss" && base != "unix" || u.Fragment != "" {
		return nil, wrong
	}
	t.user = u.User.Username()
	t.password, _ = u.User.Password()
	if t.form == sentinel {
		master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		if master == "" || strings.ContainsAny(master, "@:") {
			return nil, errors.New(describe(given) + "does not name the primary that Sentinel watches: use redis+sentinel://host:port,host:port/primary[/db]")
		}
		t.master, u.Path, u.RawPath = master, "/"+db, ""
	}
	if t.form == cluster && strings.Trim(u.Path, "/0") != "" {
		return nil, errors.New(describe(given) + "names a database, but a Redis Cluster has only one: remove it")
	}
	query := u.Query()
	ca, cert, key := take(query, "tls_ca"), take(query, "tls_cert"), take(query, "tls_key")
	if t.form == sentinel {
		t.sentinelUser, t.sentinelPassword = take(query, "sentinel_username"), take(query, "sentinel_password")
	}
	db := strings.Trim(u.Path, "/")
	switch {
	case base == "unix":
		if u.Path == "" || u.Host != "" || strings.Contains(u.Path, "@") && strings.Contains(u.Path, ":") {
			return nil, wrong
		}
		t.network, t.addrs, db = "unix", []string{u.Path}, ""
	case !multiple:
		addr, ok := hostPort(u.Host, "6379")
		if !ok {
			return nil, wrong
		}
		t.addrs = []string{addr}
	}
	if name := take(query, "db"); db == "" {
		db = name
	}
	if err := t.parameters(query, db); err != nil {
		return nil, errors.New(describe(given) + "is not a Redis URL: " + err.Error() + ": see sash help redis")
	}
	if base == "rediss" {
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: take(query, "skip_verify") == "true"}
		if t.form == single { // each node of the other forms has its own name
			t.tls.ServerName = u.Hostname()
		}
	}
	if len(query) > 0 {
		return nil, errors.New(describe(given) + "has a parameter that is not known: see sash help redis")
	}
	return t, addFiles(t.tls, ca, cert, key)
}

// parameters reads the database and the parameters of all forms of URLs. Its error names the parameter without the value.
func (t *target) parameters(query url.Values, db string) error {
	var wrong error
	whole := func(name, text string, into *int) {
		n, err := strconv.Atoi(text)
		if *into = n; text != "" && (err != nil || n < 0) {
			wrong = errors.New("the " + name + " is not a number")
		}
	}
	span := func(name string, into *time.Duration) {
		text := take(query, name)
		if text == "" {
			return
		}
		d, err := time.ParseDuration(text)
		if seconds, no := strconv.Atoi(text); no == nil { // as other clients write it
			d, err = time.Duration(seconds)*time.Second, nil
		}
		if *into = d; err != nil || d <= 0 {
			wrong = errors.New(name + " is not a time such as 1s")
		}
	}
	protocol := 0
	whole("database", db, &t.db)
	whole("pool_size", take(query, "pool_size"), &t.pool)
	whole("protocol", take(query, "protocol"), &protocol)
	span("dial_timeout", &t.dial)
	span("read_timeout", &t.read)
	t.resp2, t.name = protocol == 2, take(query, "client_name")
	return wrong
}

func take(query url.Values, name string) string {
	value := query.Get(name)
	query.Del(name)
	return value
}

func hostPort(text, port string) (string, bool) {
	u, err := url.Parse("redis://" + text)
	if err != nil || u.Hostname() == "" || u.Host != text {
		return "", false
	}
	port = cmp.Or(u.Port(), port)
	_, err = strconv.ParseUint(port, 10, 16)
	return net.JoinHostPort(u.Hostname(), port), err == nil
}

// harmless matches a URL without any place for a password, however the URL was meant.
var harmless = regexp.MustCompile(`^([a-z+]+://)?[\w.-]*(:\d{1,5})?(/\d{0,2})?$`)

// describe returns an invalid URL for messages, unless it might contain a password.
func describe(url string) string {
	if !harmless.MatchString(url) {
		return "what was given "
	}
	return `"` + url + `" `
}

const (
	// poolSize bounds the connections to one server for calls that need their own, which are those that wait for replicas.
	poolSize = 64
	// poolIdle is how long such a connection may be idle.
	poolIdle = time.Minute
)

func (t *target) option() rueidis.ClientOption {
	o := rueidis.ClientOption{
		InitAddress: t.addrs, Username: t.user, Password: t.password, ClientName: t.name, SelectDB: t.db, AlwaysRESP2: t.resp2,
		TLSConfig: t.tls, // selects the TLS port of a Cluster; the dialer does the rest
		Dialer:    net.Dialer{Timeout: t.dial}, ConnWriteTimeout: t.read, ForceSingleClient: t.form == single,
		// Open one connection to each server: all concurrent calls share one pipeline.
		PipelineMultiplex:   -1,
		BlockingPoolSize:    cmp.Or(t.pool, poolSize),
		BlockingPoolCleanup: poolIdle,
		// Never resend a command, and send none that needs further permissions.
		DisableRetry:  true,
		DisableCache:  true,
		ClientSetInfo: rueidis.DisableClientSetInfo,
	}
	if t.form == sentinel {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: t.master, Username: t.sentinelUser, Password: t.sentinelPassword, TLSConfig: t.tls,
		}
	}
	return rueidisstore.Tune(o)
}
