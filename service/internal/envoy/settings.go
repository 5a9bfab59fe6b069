// Package envoy lets sash serve replace Envoy's rate limit service. It reads that service's environment variables,
// and receives configurations from a management server. docs/envoy.md lists every variable and its effect.
package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/telemetry"
)

// Variables are the settings without a flag, and the path of Config, which also has a flag.
type Variables struct {
	// Config is the file or directory of the configuration, which the service watches. An empty Path is the built-in example. Its
	// defaults come from SASH_ALGORITHM, which a file of Envoy's service cannot express, and from SASH_ENVOY_COMPATIBLE.
	Config config.Source
	// Management is a server that sends the configuration, in place of Config. Nil is none.
	Management *Source
	// StartWithoutConfig starts without a valid configuration. Every answer is an error until there is one.
	StartWithoutConfig bool
	// RedisPrefix is the prefix of all keys in Redis. Empty is the prefix of package redisstore.
	RedisPrefix string
	// ReadyNeedsRedis makes /healthcheck and gRPC health fail without Redis, and ReadyNeedsConfig without a domain.
	ReadyNeedsRedis, ReadyNeedsConfig bool
	// Protocol configures answers to Envoy. SASH_ENVOY_COMPATIBLE sets its Counting.
	Protocol rls.Options
	Server   rls.Server
	// NearLimit is the used share of a limit, above 0 and at most 1, from which a call counts as near it. Zero is that of package stats.
	NearLimit float64
	// Milliseconds makes the response time in Prometheus count in milliseconds instead of seconds.
	Milliseconds bool
}

// Settings are the environment's settings.
type Settings struct {
	Variables
	// Deployed reports whether a variable is set that only Envoy's service has. Only then are the addresses, Redis, the path of
	// Config, LogLevel and LogJSON read, with that service's defaults, because other programs use these variables too.
	Deployed bool
	// HTTP, GRPC and Admin are addresses to listen on.
	HTTP, GRPC, Admin string
	// Redis is a URL in the form that sash accepts.
	Redis string
	// LogLevel is debug, info, warn or error.
	LogLevel string
	LogJSON  bool
	// TLS holds the files of the gRPC server. Nil means no TLS.
	TLS       *access.TLSFiles
	Telemetry telemetry.Exporters
	// Ignored lists variables that are set but have no effect, each with the reason.
	Ignored []string
}

// own are the variables that only Envoy's service has.
var own = []string{"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "CONFIG_TYPE", "REDIS_SOCKET_TYPE", "REDIS_TYPE", "BACKEND_TYPE"}

// ignored are the variables without effect, and the reasons.
var ignored = [][2]string{
	{"USE_DOG_STATSD_MOGRIFIERS", "rule names do not become tags: Prometheus has them as labels"},
	{"PROMETHEUS_MAPPER_YAML", "metrics have the names of that service's own mapping"},
	{"REDIS_PERSECOND", "one Redis decides all limits: a request with several limits is one decision"},
	{localCache, "refusals are always remembered while they hold, and SASH_ENVOY_COMPATIBLE is not set"},
	{"CONFIG_GRPC_XDS_NODE_METADATA", "the management server receives only the node's ID"},
	{"REDIS_PIPELINE_WINDOW", "concurrent decisions always travel together"},
	{stopAtLimit, "a refusal never charges anything, unless SASH_ENVOY_COMPATIBLE is set"},
}

// Read reads the environment. InPlace says that the program runs under the name of Envoy's service. An error names the invalid variable.
func Read(env func(string) string, inPlace bool) (*Settings, error) {
	r := &reader{env: env}
	s := &Settings{Deployed: inPlace || slices.ContainsFunc(own, func(name string) bool { return env(name) != "" })}
	s.Variables = Variables{
		Config:             config.Source{Merge: r.boolean("MERGE_DOMAIN_CONFIG")},
		StartWithoutConfig: r.boolean("FORCE_START_WITHOUT_INITIAL_CONFIG"),
		ReadyNeedsConfig:   r.boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
		Protocol: rls.Options{
			Shadow: r.boolean("SHADOW_MODE"), Quota: r.boolean("QUOTA_MODE"), Metadata: r.boolean("RESPONSE_DYNAMIC_METADATA"),
		},
		Server: rls.Server{
			MaxConnectionAge: r.duration("GRPC_MAX_CONNECTION_AGE"), MaxConnectionAgeGrace: r.duration("GRPC_MAX_CONNECTION_AGE_GRACE"),
		},
		NearLimit:    r.ratio("NEAR_LIMIT_RATIO", "a number above 0 and at most 1", func(f float64) bool { return f > 0 && f <= 1 }),
		Milliseconds: r.boolean("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"),
	}
	if r.boolean("LIMIT_RESPONSE_HEADERS_ENABLED") {
		s.Protocol.Headers = &rls.Headers{
			Limit:     r.header("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
			Remaining: r.header("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
			Reset:     r.header("LIMIT_RESET_HEADER", "RateLimit-Reset"),
		}
	}
	if r.boolean("GRPC_SERVER_USE_TLS") {
		s.TLS = &access.TLSFiles{
			Cert: env("GRPC_SERVER_TLS_CERT"), Key: env("GRPC_SERVER_TLS_KEY"),
			ClientCA: env("GRPC_CLIENT_TLS_CACERT"), ClientSAN: env("GRPC_CLIENT_TLS_SAN"),
		}
	}
	s.counting(r)
	for _, variable := range ignored {
		if s.Protocol.Counting != nil && (variable[0] == localCache || variable[0] == stopAtLimit) {
			continue
		}
		if v := env(variable[0]); v != "" && v != "false" && v != "0" {
			s.Ignored = append(s.Ignored, variable[0]+": "+variable[1])
		}
	}
	if s.Deployed {
		s.deployment(r)
	}
	s.Telemetry = r.telemetry(s.Deployed)
	return s, r.err
}

// These variables have an effect only with SASH_ENVOY_COMPATIBLE.
const (
	localCache  = "LOCAL_CACHE_SIZE_IN_BYTES"
	stopAtLimit = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"
)

func (s *Settings) counting(r *reader) {
	rules := &s.Config.Defaults
	size, stop := r.bytes(localCache), r.boolean(stopAtLimit)
	if r.boolean("SASH_ENVOY_COMPATIBLE") {
		*rules = config.Defaults{Algorithm: sash.FixedWindow, CountRefused: true, HeadersOnly: true}
		s.Protocol.Counting = &decide.Counting{Stop: stop}
		if size > 0 {
			s.Protocol.Counting.Over = decide.NewOverLimit(size)
		}
	}
	if name := r.env("SASH_ALGORITHM"); name != "" {
		if err := rules.Algorithm.UnmarshalText([]byte(name)); err != nil {
			r.fail("SASH_ALGORITHM: %v", err)
		}
	}
}

// deployment reads the variables that count only in a deployment of Envoy's service.
func (s *Settings) deployment(r *reader) {
	switch kind := strings.ToUpper(r.text("CONFIG_TYPE", "FILE")); kind {
	case "FILE":
	case "GRPC_XDS_SOTW":
		s.Management = r.management()
	default:
		r.fail("CONFIG_TYPE=%s: use FILE or GRPC_XDS_SOTW", kind)
	}
	s.Config.Path = filepath.Join(r.text("RUNTIME_ROOT", "/srv/runtime_data/current"), r.env("RUNTIME_SUBDIRECTORY"), r.text("RUNTIME_APPDIRECTORY", "config"))
	s.Config.DotFiles = !r.boolean("RUNTIME_IGNOREDOTFILES")
	s.Config.Siblings = r.env("RUNTIME_WATCH_ROOT") == "" || r.boolean("RUNTIME_WATCH_ROOT")
	s.HTTP = r.address("HOST", "PORT", "8080")
	s.Admin = r.address("DEBUG_HOST", "DEBUG_PORT", "6070")
	s.GRPC = r.address("GRPC_HOST", "GRPC_PORT", "8081")
	if path := r.env("GRPC_UDS"); path != "" {
		s.GRPC = "unix://" + path
	}
	s.Redis, s.RedisPrefix = r.redis(), r.env("CACHE_KEY_PREFIX")
	s.ReadyNeedsRedis = r.boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION")
	s.LogJSON = strings.EqualFold(r.env("LOG_FORMAT"), "json")
	level := strings.ToLower(r.text("LOG_LEVEL", "warn"))
	if s.LogLevel = levels[level]; s.LogLevel == "" {
		r.fail("LOG_LEVEL=%s: use debug, info, warn or error", level)
	}
}

// levels maps the log levels of Envoy's service to ours.
var levels = map[string]string{
	"trace": "debug", "debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error", "fatal": "error", "panic": "error",
}

// A reader reads variables and keeps the first error.
type reader struct {
	env func(string) string
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = errors.New("environment variable " + fmt.Sprintf(format, args...))
	}
}

func (r *reader) text(name, otherwise string) string {
	return cmp.Or(r.env(name), otherwise)
}

// header reads the name of a header field and checks it, because Envoy would send any name to its clients.
func (r *reader) header(name, otherwise string) string {
	v := r.text(name, otherwise)
	if !httpguts.ValidHeaderFieldName(v) {
		r.fail("%s=%s: use the name of a header, such as %s", name, v, otherwise)
	}
	return v
}

// parsed reads a variable. An unset one is the zero value. One that does not parse or is not valid is an error.
func parsed[T any](r *reader, name, use string, parse func(string) (T, error), valid func(T) bool) (v T) {
	text := r.env(name)
	if text == "" {
		return v
	}
	v, err := parse(text)
	if err != nil || !valid(v) {
		r.fail("%s=%s: use %s", name, text, use)
	}
	return v
}

func (r *reader) boolean(name string) bool {
	return parsed(r, name, "true or false", strconv.ParseBool, func(bool) bool { return true })
}

func (r *reader) bytes(name string) int {
	return parsed(r, name, "a number of bytes", strconv.Atoi, func(n int) bool { return n >= 0 })
}

func (r *reader) duration(name string) time.Duration {
	return parsed(r, name, "a duration such as 24h", time.ParseDuration, func(d time.Duration) bool { return d >= 0 })
}

func (r *reader) ratio(name, use string, valid func(float64) bool) float64 {
	parse := func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
	return parsed(r, name, use, parse, valid)
}

func (r *reader) address(host, port, otherwise string) string {
	return net.JoinHostPort(r.text(host, "0.0.0.0"), r.port(port, otherwise, 0))
}

func (r *reader) port(name, otherwise string, least uint64) string {
	p := r.text(name, otherwise)
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || strconv.FormatUint(n, 10) != p || n < least {
		r.fail("%s=%s: use a port number", name, p)
	}
	return p
}

// telemetry reads where to send metrics and traces. Envoy's service uses statsd by default; here a variable enables it.
func (r *reader) telemetry(deployed bool) telemetry.Exporters {
	var t telemetry.Exporters
	dog, plain := r.boolean("USE_DOG_STATSD"), r.boolean("USE_STATSD")
	where := r.env("STATSD_HOST") != "" || r.env("STATSD_PORT") != ""
	switch {
	case dog && plain:
		r.fail("USE_DOG_STATSD and USE_STATSD are both true: set one of them")
	case r.boolean("DISABLE_STATS"):
	case dog, plain, deployed && where && r.env("USE_STATSD") == "" && !r.boolean("USE_PROMETHEUS"):
		t.Statsd = r.statsd(dog)
	}
	if r.boolean("USE_PROMETHEUS") {
		t.PrometheusAddr, t.PrometheusPath = r.text("PROMETHEUS_ADDR", ":9090"), r.text("PROMETHEUS_PATH", "/metrics")
		if !strings.HasPrefix(t.PrometheusPath, "/") {
			r.fail("PROMETHEUS_PATH=%s: begin it with /", t.PrometheusPath)
		}
	}
	if r.boolean("TRACING_ENABLED") {
		t.Tracing = r.tracing()
	}
	return t
}

func (r *reader) statsd(dog bool) *telemetry.Statsd {
	s := &telemetry.Statsd{Network: "udp", Dog: dog, Interval: cmp.Or(r.duration("STATS_FLUSH_INTERVAL"), 10*time.Second)}
	if !dog {
		s.Network = r.text("STATSD_PROTOCOL", "tcp")
		if s.Network != "tcp" && s.Network != "udp" {
			r.fail("STATSD_PROTOCOL=%s: use tcp or udp", s.Network)
		}
	}
	s.Addr = net.JoinHostPort(r.text("STATSD_HOST", "localhost"), r.port("STATSD_PORT", "8125", 1))
	for _, pair := range r.pairs("EXTRA_TAGS", "key:value") {
		if pair[1] != "" {
			s.Tags = append(s.Tags, pair[0]+":"+pair[1])
		}
	}
	slices.Sort(s.Tags)
	return s
}

func (r *reader) tracing() *telemetry.Tracing {
	t := &telemetry.Tracing{
		Protocol:  r.env("TRACING_EXPORTER_PROTOCOL"),
		Service:   r.text("TRACING_SERVICE_NAME", "RateLimit"),
		Namespace: r.env("TRACING_SERVICE_NAMESPACE"),
		Instance:  r.env("TRACING_SERVICE_INSTANCE_ID"),
		Rate:      1,
	}
	if t.Protocol != "" && t.Protocol != "http" {
		r.fail("TRACING_EXPORTER_PROTOCOL=%s: use http, and the collector's port for it, such as 4318", t.Protocol)
	}
	if r.env("TRACING_SAMPLING_RATE") != "" {
		t.Rate = r.ratio("TRACING_SAMPLING_RATE", "a number from 0 to 1", func(f float64) bool { return f >= 0 && f <= 1 })
	}
	return t
}

func (r *reader) management() *Source {
	m := &Source{
		Server:     r.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
		Node:       r.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		Retry:      r.duration("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"),
		MaxMessage: r.bytes("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"),
	}
	if r.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		m.TLS, m.CA, m.ServerName = true, r.env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"), r.env("CONFIG_GRPC_XDS_SERVER_TLS_SAN")
		m.Cert, m.Key = r.env("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"), r.env("CONFIG_GRPC_XDS_CLIENT_TLS_KEY")
	}
	m.Headers = make(map[string]string)
	for _, pair := range r.pairs("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "name:value") {
		m.Headers[strings.ToLower(pair[0])] = pair[1]
	}
	return m
}

// pairs reads a comma-separated list from a variable. Its elements have the given form. An error hides the value: it may be secret.
func (r *reader) pairs(name, form string) (out [][2]string) {
	if r.env(name) == "" {
		return nil
	}
	for pair := range strings.SplitSeq(r.env(name), ",") {
		key, value, ok := strings.Cut(pair, ":")
		if key = strings.TrimSpace(key); !ok || key == "" {
			r.fail("%s: use %s,%[2]s", name, form)
		}
		out = append(out, [2]string{key, strings.TrimSpace(value)})
	}
	return out
}
