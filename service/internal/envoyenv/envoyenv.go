// Package envoyenv reads the environment variables of Envoy's rate limit service, so that a deployment of it
// changes its image only. docs/envoy.md says for each variable what becomes of it.
package envoyenv

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are what the environment says.
type Settings struct {
	// Deployed says that this is a deployment of Envoy's service: one of its own variables is set. Only
	// then the addresses, Redis, Config, LogLevel and LogJSON are read, whose names others use too, and
	// what is not set has the default of that service.
	Deployed bool
	// Config is the directory of the configuration.
	Config string
	// Management is the server that the configuration comes from; nil for files.
	Management *Management
	// Merge lets several files configure one domain.
	Merge bool
	// StartWithoutConfig starts before there is a configuration.
	StartWithoutConfig bool
	// HTTP, GRPC and Admin are addresses to listen on; GRPC is a path when GRPCNetwork is unix.
	HTTP, GRPC, GRPCNetwork, Admin string
	// Redis is a URL as sash takes it, and RedisPrefix what keys begin with.
	Redis, RedisPrefix string
	// HealthNeedsRedis fails the health check when Redis does not answer.
	HealthNeedsRedis bool
	// LogLevel is debug, info, warn or error.
	LogLevel string
	LogJSON  bool
	// Shadow, Metadata, NearLimitRatio and Headers are options of the protocol. No headers is an empty
	// HeaderLimit.
	Shadow, Metadata                          bool
	NearLimitRatio                            float64
	HeaderLimit, HeaderRemaining, HeaderReset string
	// TLS of the gRPC server.
	TLS                                        bool
	TLSCert, TLSKey, TLSClientCA, TLSClientSAN string
	MaxConnectionAge, MaxConnectionAgeGrace    time.Duration
	// Telemetry is where counters and traces go.
	Telemetry Telemetry
	// Ignored are variables that are set and have no effect, each with the reason.
	Ignored []string
}

// own are variables that only Envoy's service has.
var own = []string{"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "CONFIG_TYPE", "REDIS_SOCKET_TYPE", "REDIS_TYPE", "BACKEND_TYPE"}

// ignored are variables without an effect, and why.
var ignored = [][2]string{
	{"USE_DOG_STATSD_MOGRIFIERS", "names of rules are not turned into tags: Prometheus has them as labels"},
	{"PROMETHEUS_MAPPER_YAML", "the names are those of that service's own mapping"},
	{"REDIS_PERSECOND", "one Redis decides all limits: a request over several limits is one decision"},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "refusals that hold are remembered in any case"},
	{"CONFIG_GRPC_XDS_NODE_METADATA", "the management server is told the node's ID only"},
	{"REDIS_PIPELINE_WINDOW", "decisions that are made at the same time always travel together"},
	{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "a refusal charges nothing in any case"},
}

// Read reads the environment. The error says which variable is wrong.
func Read(env func(string) string) (*Settings, error) {
	r := &reader{env: env}
	s := &Settings{
		Deployed:              slices.ContainsFunc(own, func(name string) bool { return env(name) != "" }),
		Merge:                 r.boolean("MERGE_DOMAIN_CONFIG"),
		StartWithoutConfig:    r.boolean("FORCE_START_WITHOUT_INITIAL_CONFIG"),
		Shadow:                r.boolean("SHADOW_MODE"),
		Metadata:              r.boolean("RESPONSE_DYNAMIC_METADATA"),
		NearLimitRatio:        r.ratio("NEAR_LIMIT_RATIO"),
		TLS:                   r.boolean("GRPC_SERVER_USE_TLS"),
		TLSCert:               env("GRPC_SERVER_TLS_CERT"),
		TLSKey:                env("GRPC_SERVER_TLS_KEY"),
		TLSClientCA:           env("GRPC_CLIENT_TLS_CACERT"),
		TLSClientSAN:          env("GRPC_CLIENT_TLS_SAN"),
		MaxConnectionAge:      r.duration("GRPC_MAX_CONNECTION_AGE"),
		MaxConnectionAgeGrace: r.duration("GRPC_MAX_CONNECTION_AGE_GRACE"),
	}
	if r.boolean("LIMIT_RESPONSE_HEADERS_ENABLED") {
		s.HeaderLimit = r.text("LIMIT_LIMIT_HEADER", "RateLimit-Limit")
		s.HeaderRemaining = r.text("LIMIT_REMAINING_HEADER", "RateLimit-Remaining")
		s.HeaderReset = r.text("LIMIT_RESET_HEADER", "RateLimit-Reset")
	}
	for _, variable := range ignored {
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

// deployment reads what is read only where Envoy's service was deployed.
func (s *Settings) deployment(r *reader) {
	switch kind := strings.ToUpper(r.text("CONFIG_TYPE", "FILE")); kind {
	case "FILE":
	case "GRPC_XDS_SOTW":
		s.Management = r.management()
	default:
		r.fail("CONFIG_TYPE=%s: it is FILE or GRPC_XDS_SOTW", kind)
	}
	s.Config = filepath.Join(r.text("RUNTIME_ROOT", "/srv/runtime_data/current"), r.env("RUNTIME_SUBDIRECTORY"), r.text("RUNTIME_APPDIRECTORY", "config"))
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
		r.fail("LOG_LEVEL=%s: it is debug, info, warn or error", level)
	}
}

// A reader reads variables and keeps the first that is wrong.
type reader struct {
	env func(string) string
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = errors.New("the environment's " + fmt.Sprintf(format, args...))
	}
}

func (r *reader) text(name, otherwise string) string {
	if v := r.env(name); v != "" {
		return v
	}
	return otherwise
}

func (r *reader) boolean(name string) bool {
	v := r.env(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		r.fail("%s=%s: it is true or false", name, v)
	}
	return b
}

func (r *reader) duration(name string) time.Duration {
	v := r.env(name)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		r.fail("%s=%s: it is a duration such as 24h", name, v)
	}
	return d
}

func (r *reader) ratio(name string) float64 {
	v := r.env(name)
	if v == "" {
		return 0
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f > 0 && f <= 1) {
		r.fail("%s=%s: it is above 0 and at most 1", name, v)
	}
	return f
}

func (r *reader) address(host, port, otherwise string) string {
	p := r.text(port, otherwise)
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || strconv.FormatUint(n, 10) != p {
		r.fail("%s=%s: it is a port", port, p)
	}
	return net.JoinHostPort(r.text(host, "0.0.0.0"), p)
}
