// Package envoy makes sash serve a replacement for Envoy's rate limit service: it reads that service's environment
// variables, and receives configurations from a management server. docs/envoy.md lists every variable and its effect.
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

	"example.com/sash/service/internal/telemetry"
)

// Settings are the environment's settings.
type Settings struct {
	// Deployed reports whether this is a deployment of Envoy's service: one of its own variables is set. Only then are
	// the addresses, Redis, Config, LogLevel and LogJSON read, whose variables other programs use too. Unset variables
	// have the defaults of that service.
	Deployed bool
	// Config is the directory of the configuration. DotFiles and Siblings are those of config.Source.
	Config             string
	DotFiles, Siblings bool
	// Management is the server that sends the configuration. Nil is files.
	Management *Source
	// Merge lets several files configure one domain.
	Merge bool
	// StartWithoutConfig starts before there is a configuration.
	StartWithoutConfig bool
	// HTTP, GRPC and Admin are addresses to listen on. GRPC is a path if GRPCNetwork is unix.
	HTTP, GRPC, GRPCNetwork, Admin string
	// Redis is a URL as sash takes it, and RedisPrefix begins its keys.
	Redis, RedisPrefix string
	// HealthNeedsRedis fails health checks while Redis does not answer, and HealthNeedsConfig while no domain is configured.
	HealthNeedsRedis, HealthNeedsConfig bool
	// LogLevel is debug, info, warn or error.
	LogLevel string
	LogJSON  bool
	// Shadow, Quota, Metadata, NearLimitRatio and the headers are options of the protocol. An empty HeaderLimit is no headers.
	Shadow, Quota, Metadata                   bool
	NearLimitRatio                            float64
	HeaderLimit, HeaderRemaining, HeaderReset string
	// TLS of the gRPC server.
	TLS                                        bool
	TLSCert, TLSKey, TLSClientCA, TLSClientSAN string
	MaxConnectionAge, MaxConnectionAgeGrace    time.Duration
	// Milliseconds makes the response time in Prometheus count in milliseconds, as it did once, instead of seconds.
	Milliseconds bool
	// Algorithm is SASH_ALGORITHM: what a configuration file cannot say that Envoy's service reads, too. Empty is not set.
	Algorithm string
	// Compatible is SASH_ENVOY_COMPATIBLE: clients see what Envoy's service answers. Stop and LocalCache, in bytes, have an
	// effect with it only.
	Compatible, Stop bool
	LocalCache       int
	// Telemetry configures where counters and traces are exported.
	Telemetry telemetry.Exporters
	// Ignored are variables that are set and have no effect, each with the reason.
	Ignored []string
}

// own are the variables that only Envoy's service has.
var own = []string{"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "CONFIG_TYPE", "REDIS_SOCKET_TYPE", "REDIS_TYPE", "BACKEND_TYPE"}

// ignored are the variables without effect, and why.
var ignored = [][2]string{
	{"USE_DOG_STATSD_MOGRIFIERS", "rule names do not become tags: Prometheus has them as labels"},
	{"SASH_CHARGE_EACH", "a request charges all of its descriptors or none; SASH_ENVOY_COMPATIBLE=true counts as Envoy's service does"},
	{"PROMETHEUS_MAPPER_YAML", "metrics have the names of that service's own mapping"},
	{"REDIS_PERSECOND", "one Redis decides all limits: a request with several limits is one decision"},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "refusals are always remembered while they hold, and SASH_ENVOY_COMPATIBLE is not set"},
	{"CONFIG_GRPC_XDS_NODE_METADATA", "the management server receives only the node's ID"},
	{"REDIS_PIPELINE_WINDOW", "concurrent decisions always travel together"},
	{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "a refusal never charges anything, unless SASH_ENVOY_COMPATIBLE is set"},
}

// InPlace returns the environment of a process that runs under the name of Envoy's service: it is a deployment of it,
// whichever of its variables are set.
func InPlace(env func(string) string) func(string) string {
	return func(name string) string {
		if v := env(name); v != "" || name != "CONFIG_TYPE" {
			return v
		}
		return "FILE" // the default there
	}
}

// Read reads the environment. An error names the wrong variable.
func Read(env func(string) string) (*Settings, error) {
	r := &reader{env: env}
	s := &Settings{
		Deployed:              slices.ContainsFunc(own, func(name string) bool { return env(name) != "" }),
		Merge:                 r.boolean("MERGE_DOMAIN_CONFIG"),
		StartWithoutConfig:    r.boolean("FORCE_START_WITHOUT_INITIAL_CONFIG"),
		HealthNeedsConfig:     r.boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
		Shadow:                r.boolean("SHADOW_MODE"),
		Quota:                 r.boolean("QUOTA_MODE"),
		Metadata:              r.boolean("RESPONSE_DYNAMIC_METADATA"),
		NearLimitRatio:        r.ratio("NEAR_LIMIT_RATIO", "a number above 0 and at most 1", func(f float64) bool { return f > 0 && f <= 1 }),
		Milliseconds:          r.boolean("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"),
		Algorithm:             env("SASH_ALGORITHM"),
		Compatible:            r.boolean("SASH_ENVOY_COMPATIBLE"),
		Stop:                  r.boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
		LocalCache:            r.bytes("LOCAL_CACHE_SIZE_IN_BYTES"),
		TLS:                   r.boolean("GRPC_SERVER_USE_TLS"),
		TLSCert:               env("GRPC_SERVER_TLS_CERT"),
		TLSKey:                env("GRPC_SERVER_TLS_KEY"),
		TLSClientCA:           env("GRPC_CLIENT_TLS_CACERT"),
		TLSClientSAN:          env("GRPC_CLIENT_TLS_SAN"),
		MaxConnectionAge:      r.duration("GRPC_MAX_CONNECTION_AGE"),
		MaxConnectionAgeGrace: r.duration("GRPC_MAX_CONNECTION_AGE_GRACE"),
	}
	if r.boolean("LIMIT_RESPONSE_HEADERS_ENABLED") {
		s.HeaderLimit = r.header("LIMIT_LIMIT_HEADER", "RateLimit-Limit")
		s.HeaderRemaining = r.header("LIMIT_REMAINING_HEADER", "RateLimit-Remaining")
		s.HeaderReset = r.header("LIMIT_RESET_HEADER", "RateLimit-Reset")
	}
	for _, variable := range ignored {
		if s.Compatible && (variable[0] == "LOCAL_CACHE_SIZE_IN_BYTES" || variable[0] == "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
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

// deployment reads the variables that count only in a deployment of Envoy's service.
func (s *Settings) deployment(r *reader) {
	switch kind := strings.ToUpper(r.text("CONFIG_TYPE", "FILE")); kind {
	case "FILE":
	case "GRPC_XDS_SOTW":
		s.Management = r.management()
	default:
		r.fail("CONFIG_TYPE=%s: use FILE or GRPC_XDS_SOTW", kind)
	}
	s.Config = filepath.Join(r.text("RUNTIME_ROOT", "/srv/runtime_data/current"), r.env("RUNTIME_SUBDIRECTORY"), r.text("RUNTIME_APPDIRECTORY", "config"))
	s.DotFiles = !r.boolean("RUNTIME_IGNOREDOTFILES")
	s.Siblings = r.env("RUNTIME_WATCH_ROOT") == "" || r.boolean("RUNTIME_WATCH_ROOT")
	s.HTTP = r.address("HOST", "PORT", "8080")
	s.Admin = r.address("DEBUG_HOST", "DEBUG_PORT", "6070")
	s.GRPCNetwork, s.GRPC = "tcp", r.address("GRPC_HOST", "GRPC_PORT", "8081")
	if path := r.env("GRPC_UDS"); path != "" {
		s.GRPCNetwork, s.GRPC = "unix", path
	}
	s.Redis, s.RedisPrefix = r.redis(), r.env("CACHE_KEY_PREFIX")
	s.HealthNeedsRedis = r.boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION")
	s.LogJSON = strings.EqualFold(r.env("LOG_FORMAT"), "json")
	switch level := strings.ToLower(r.text("LOG_LEVEL", "warn")); level {
	case "trace", "debug":
		s.LogLevel = "debug"
	case "info", "warn", "error":
		s.LogLevel = level
	case "warning":
		s.LogLevel = "warn"
	case "fatal", "panic":
		s.LogLevel = "error"
	default:
		r.fail("LOG_LEVEL=%s: use debug, info, warn or error", level)
	}
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
	if v := r.env(name); v != "" {
		return v
	}
	return otherwise
}

// header reads the name of a header field and checks it, because Envoy would send any name to its clients.
func (r *reader) header(name, otherwise string) string {
	v := r.text(name, otherwise)
	if !httpguts.ValidHeaderFieldName(v) {
		r.fail("%s=%s: use the name of a header, such as %s", name, v, otherwise)
	}
	return v
}

// parsed reads a variable. One that is not set is the zero value, and one that does not parse or is not valid is an error.
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

// bytes reads a number of bytes; zero is not set.
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
	p := r.text(port, otherwise)
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || strconv.FormatUint(n, 10) != p {
		r.fail("%s=%s: use a port number", port, p)
	}
	return net.JoinHostPort(r.text(host, "0.0.0.0"), p)
}

// telemetry reads where metrics and traces are exported. Envoy's service sends to statsd by default; this one only if a
// variable turns it on or names the server.
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
	port := r.text("STATSD_PORT", "8125")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		r.fail("STATSD_PORT=%s: use a port number", port)
	}
	s.Addr = net.JoinHostPort(r.text("STATSD_HOST", "localhost"), port)
	if text := r.env("EXTRA_TAGS"); text != "" {
		for pair := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), ":")
			if !ok || key == "" {
				r.fail("EXTRA_TAGS=%s: use key:value,key:value", text)
			}
			if value != "" {
				s.Tags = append(s.Tags, key+":"+value)
			}
		}
		slices.Sort(s.Tags)
	}
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

// management reads where a management server is.
func (r *reader) management() *Source {
	m := &Source{
		Server:     r.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
		Node:       r.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		Retry:      r.duration("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"),
		MaxMessage: r.bytes("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"),
	}
	if r.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		m.TLS = &ClientTLS{
			CA:   r.env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
			Cert: r.env("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"), Key: r.env("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
			ServerName: r.env("CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
		}
	}
	if text := r.env("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"); text != "" {
		m.Headers = make(map[string]string)
		for pair := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(pair, ":")
			if !ok {
				r.fail("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: use name:value,name:value")
			}
			m.Headers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	return m
}
