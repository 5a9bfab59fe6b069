package envoy

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/telemetry"
)

// from returns a lookup in an environment written as NAME=VALUE, separated by spaces.
func from(text string) func(string) string {
	all := map[string]string{}
	for field := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(field, "=")
		all[name] = value
	}
	return func(name string) string { return all[name] }
}

func TestRedisSettingsBecomeOneURL(t *testing.T) {
	for text, want := range map[string]string{
		"REDIS_TYPE=SINGLE":                                                                           "unix:///var/run/nutcracker/ratelimit.sock",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379":                                                  "redis://redis:6379",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 REDIS_AUTH=p@ss":                                  "redis://:p%40ss@redis:6379",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 REDIS_AUTH=user:pa:ss REDIS_POOL_SIZE=20":         "redis://user:pa%3Ass@redis:6379?pool_size=20",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 REDIS_TLS=true REDIS_TLS_CACERT=/ca.pem":          "rediss://redis:6379?tls_ca=%2Fca.pem",
		"REDIS_SOCKET_TYPE=tcp REDIS_TYPE=sentinel REDIS_URL=mymaster,a:26379,b:26379":                "redis+sentinel://a:26379,b:26379/mymaster",
		"REDIS_SOCKET_TYPE=tcp REDIS_TYPE=SENTINEL REDIS_URL=mymaster,a:26379 REDIS_SENTINEL_AUTH=pw": "redis+sentinel://a:26379/mymaster?sentinel_password=pw",
		"REDIS_SOCKET_TYPE=tcp REDIS_TYPE=CLUSTER REDIS_URL=a:7000,b:7001 REDIS_TLS=true":             "rediss+cluster://a:7000,b:7001",

		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis://redis:6379/3":                            "redis://redis:6379/3",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis://redis:6379?db=3":                         "redis://redis:6379/3",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis://u:p@redis:6379 REDIS_TLS=true":           "rediss://u:p@redis:6379",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis://u:p@redis:6379 REDIS_AUTH=other":         "redis://u:other@redis:6379",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis://redis:6379?username=u&password=p":        "redis://u:p@redis:6379",
		"REDIS_TYPE=cluster REDIS_URL=redis://u:p@a:7000,redis://u:p@b:7001":              "redis+cluster://u:p@a:7000,b:7001",
		"REDIS_TYPE=sentinel REDIS_URL=m,redis://:s@a:26379,redis://b:26379 REDIS_AUTH=p": "redis+sentinel://:p@a:26379,b:26379/m?sentinel_password=s",
	} {
		s, err := Read(from(text), false)
		if err != nil || s.Redis != want {
			t.Errorf("%s:\n\t     %s, %v\n\twant %s", text, s.Redis, err, want)
		}
	}
}

func TestDefaultsMatchEnvoysService(t *testing.T) {
	s := servertest.Must(Read(from("RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit"), false))(t)
	if s.Config.Path != "/data/ratelimit/config" || s.HTTP != "0.0.0.0:8080" || s.GRPC != "0.0.0.0:8081" ||
		!s.Config.DotFiles || !s.Config.Siblings || s.Admin != "0.0.0.0:6070" || s.LogLevel != "warn" || s.Protocol.Headers != nil || s.Protocol.Shadow {
		t.Errorf("%+v", s)
	}
	s, err := Read(from("RUNTIME_ROOT=/data HOST=10.0.0.1 PORT=80 GRPC_UDS=/run/rl.sock LOG_LEVEL=WARNING LOG_FORMAT=json "+
		"LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=X NEAR_LIMIT_RATIO=0.5 USE_STATSD=true USE_DOG_STATSD=false "+
		"RUNTIME_IGNOREDOTFILES=true RUNTIME_WATCH_ROOT=false"), false)
	if err != nil || s.HTTP != "10.0.0.1:80" || s.GRPC != "unix:///run/rl.sock" || !s.LogJSON || s.LogLevel != "warn" ||
		*s.Protocol.Headers != (rls.Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "X"}) ||
		s.NearLimit != 0.5 || len(s.Ignored) != 0 || s.Config.DotFiles || s.Config.Siblings {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = Read(from("CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_NODE_ID=edge CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=X-A:1,b:c:d "+
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_SERVER_TLS_SAN=name XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=9"), false)
	headers := map[string]string{"x-a": "1", "b": "c:d"}
	want := &Source{Server: "localhost:18000", Node: "edge", Headers: headers, MaxMessage: 9, TLS: true, ServerName: "name"}
	if err != nil || !reflect.DeepEqual(s.Management, want) {
		t.Errorf("%+v, %v", s.Management, err)
	}
}

func TestErrorsNameTheVariable(t *testing.T) {
	for _, text := range []string{
		"SHADOW_MODE=perhaps", "NEAR_LIMIT_RATIO=80", "NEAR_LIMIT_RATIO=NaN", "GRPC_MAX_CONNECTION_AGE=soon", "RUNTIME_ROOT=/ GRPC_PORT=http",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=X:Y", "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_LIMIT_HEADER=a,b",
		"CONFIG_TYPE=ZOOKEEPER", "BACKEND_TYPE=memcache", "REDIS_TYPE=quorum", "RUNTIME_ROOT=/ LOG_LEVEL=loud",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis://", "REDIS_TYPE=single REDIS_AUTH=a REDIS_AUTH_FILE=b", "REDIS_TYPE=single REDIS_AUTH_FILE=/none",
		"CONFIG_TYPE=GRPC_XDS_SOTW XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=many", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=ms",
		"REDIS_TYPE=single REDIS_POOL_SIZE=x",
		"REDIS_URL=redis:6379 REDIS_SOCKET_TYPE=pigeon",
		"REDIS_URL=redis:6379 REDIS_SOCKET_TYPE=unix", // and without REDIS_SOCKET_TYPE
		"REDIS_TYPE=single REDIS_URL=redis:6379",
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=/run/redis.sock", "SASH_ALGORITHM=leaky",
		"USE_STATSD=true USE_DOG_STATSD=true", "USE_STATSD=true STATSD_PORT=http", "USE_STATSD=true STATSD_PROTOCOL=pigeon",
		"USE_STATSD=true EXTRA_TAGS=a", "USE_STATSD=true STATS_FLUSH_INTERVAL=soon", "USE_PROMETHEUS=true PROMETHEUS_PATH=metrics",
		"TRACING_ENABLED=true TRACING_SAMPLING_RATE=2", "TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=zipkin", "USE_STATSD=perhaps",
	} {
		fields := strings.Fields(text)
		name, _, _ := strings.Cut(fields[len(fields)-1], "=")
		if _, err := Read(from(text), false); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWhereCountersGo(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                 "none",
		"USE_STATSD=true":                                  "tcp localhost:8125 false [] 10s",
		"RUNTIME_ROOT=/data STATSD_HOST=statsd":            "tcp statsd:8125 false [] 10s",
		"RUNTIME_ROOT=/data STATSD_PORT=9125":              "tcp localhost:9125 false [] 10s",
		"USE_STATSD=false STATSD_HOST=statsd":              "none",
		"USE_STATSD=true DISABLE_STATS=true":               "none",
		"USE_DOG_STATSD=true STATSD_HOST=::1":              "udp [::1]:8125 true [] 10s",
		"RUNTIME_ROOT=/ STATSD_HOST=a USE_PROMETHEUS=true": "none",
		"USE_STATSD=true STATS_FLUSH_INTERVAL=1s EXTRA_TAGS=b:2:3,a:1,none:":          "tcp localhost:8125 false [a:1 b:2:3] 1s",
		"RUNTIME_ROOT=/data USE_STATSD=false STATSD_HOST=statsd USE_DOG_STATSD=false": "none",
	} {
		s, err := Read(from(text), false)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := "none"
		if d := s.Telemetry.Statsd; d != nil {
			got = fmt.Sprint(d.Network, " ", d.Addr, " ", d.Dog, " ", d.Tags, " ", d.Interval)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestWhoReadsMetricsAndTraces(t *testing.T) {
	for text, want := range map[string]telemetry.Exporters{
		"USE_PROMETHEUS=true":  {PrometheusAddr: ":9090", PrometheusPath: "/metrics"},
		"TRACING_ENABLED=true": {Tracing: &telemetry.Tracing{Service: "RateLimit", Rate: 1}},
		"USE_PROMETHEUS=true PROMETHEUS_ADDR=:1 PROMETHEUS_PATH=/m": {PrometheusAddr: ":1", PrometheusPath: "/m"},
		"TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=http TRACING_SERVICE_NAME=a TRACING_SERVICE_NAMESPACE=b " +
			"TRACING_SERVICE_INSTANCE_ID=c TRACING_SAMPLING_RATE=0": {Tracing: &telemetry.Tracing{Protocol: "http", Service: "a", Namespace: "b", Instance: "c"}},
		"TRACING_SERVICE_NAME=a PROMETHEUS_ADDR=:1": {}, // exports that no variable turns on
	} {
		if s, err := Read(from(text), false); err != nil || !reflect.DeepEqual(s.Telemetry, want) {
			t.Errorf("%s: %+v, %v", text, s.Telemetry, err)
		}
	}
}

// How units are counted. Variables without effect are reported, and those of the counting have one in the compatible mode.
func TestHowUnitsAreCounted(t *testing.T) {
	const counting, compatible = "LOCAL_CACHE_SIZE_IN_BYTES=1000 STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true REDIS_PERSECOND=false ", "SASH_ENVOY_COMPATIBLE=true "
	for text, want := range map[string]string{
		"":                                 "sliding-log false, <nil>, 0 ignored",
		"SASH_ALGORITHM=gcra":              "gcra false, <nil>, 0 ignored",
		compatible + "SASH_ALGORITHM=gcra": "gcra true, &{false <nil>}, 0 ignored",
		compatible:                         "fixed-window true, &{false <nil>}, 0 ignored",
		compatible + counting:              "fixed-window true, &{true 0x",
		counting:                           "sliding-log false, <nil>, 2 ignored",
		"PROMETHEUS_MAPPER_YAML=x":         "sliding-log false, <nil>, 1 ignored",
	} {
		s := servertest.Must(Read(from(text), false))(t)
		got := fmt.Sprintf("%v %v, %v, %d ignored", s.Config.Defaults.Algorithm, s.Config.Defaults.CountRefused, s.Protocol.Counting, len(s.Ignored))
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// The variables of Envoy's rate limit service, from its settings and its README.
const theirs = `
PROTO HOST PORT DEBUG_HOST DEBUG_PORT GRPC_HOST GRPC_PORT GRPC_UDS GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE
GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN LOG_LEVEL LOG_FORMAT
CONFIG_TYPE FORCE_START_WITHOUT_INITIAL_CONFIG MERGE_DOMAIN_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED
CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_URL CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_GRPC_XDS_CLIENT_TLS_CERT
CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN
XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_BACKOFF_JITTER
USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_STATSD STATSD_HOST STATSD_PORT EXTRA_TAGS STATS_FLUSH_INTERVAL DISABLE_STATS
USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML
RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT
EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO CACHE_KEY_PREFIX BACKEND_TYPE
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER
REDIS_SOCKET_TYPE REDIS_TYPE REDIS_URL REDIS_POOL_SIZE REDIS_AUTH REDIS_SENTINEL_AUTH REDIS_TLS REDIS_TLS_CLIENT_CERT
REDIS_TLS_CLIENT_KEY REDIS_TLS_CACERT REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT
REDIS_USE_EXPLICIT_PIPELINE REDIS_TIMEOUT REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_ON_EMPTY_WAIT_DURATION
REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_PERSECOND REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL
REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_AUTH REDIS_PERSECOND_TLS REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_PIPELINE_WINDOW
REDIS_PERSECOND_PIPELINE_LIMIT REDIS_PERSECOND_USE_EXPLICIT_PIPELINE REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR
MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT
MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION SHADOW_MODE QUOTA_MODE RESPONSE_DYNAMIC_METADATA
REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME REDIS_AUTH_FILE
REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS
XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES
TRACING_ENABLED TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE
`

// docs/envoy.md has a row for each, or for the names that begin as it does.
func TestEveryVariableIsDocumented(t *testing.T) {
	text := servertest.Must(os.ReadFile("../../../docs/envoy.md"))(t)
	_, table, _ := strings.Cut(string(text), "\n| variable |")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile("`([A-Z0-9_]+)(…?)`").FindAllStringSubmatch(table, -1)
	for _, name := range strings.Fields(theirs) {
		found := 0
		for _, row := range rows {
			if row[1] == name && row[2] == "" || row[2] != "" && strings.HasPrefix(name, row[1]) {
				found++
			}
		}
		if found == 0 {
			t.Errorf("%s has no row", name)
		}
	}
}
