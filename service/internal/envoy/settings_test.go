package envoy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		s, err := Read(from(text))
		if err != nil || s.Redis != want {
			t.Errorf("%s:\n\t     %s, %v\n\twant %s", text, s.Redis, err, want)
		}
	}
}

func TestDefaultsMatchEnvoysService(t *testing.T) {
	s, err := Read(from("RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Config != "/data/ratelimit/config" || s.HTTP != "0.0.0.0:8080" || s.GRPC != "0.0.0.0:8081" || s.GRPCNetwork != "tcp" ||
		!s.DotFiles || !s.Siblings || s.Admin != "0.0.0.0:6070" || s.LogLevel != "warn" || s.HeaderLimit != "" || s.Shadow {
		t.Errorf("%+v", s)
	}
	s, err = Read(from("RUNTIME_ROOT=/data HOST=10.0.0.1 PORT=80 GRPC_UDS=/run/rl.sock LOG_LEVEL=WARNING LOG_FORMAT=json LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=X NEAR_LIMIT_RATIO=0.5 USE_STATSD=true USE_DOG_STATSD=false"))
	if err != nil || s.HTTP != "10.0.0.1:80" || s.GRPC != "/run/rl.sock" || s.GRPCNetwork != "unix" || !s.LogJSON || s.LogLevel != "warn" ||
		s.HeaderLimit != "RateLimit-Limit" || s.HeaderReset != "X" || s.NearLimitRatio != 0.5 || len(s.Ignored) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestWhichFilesAreRead(t *testing.T) {
	for text, want := range map[string][2]bool{ // dot files, siblings
		"RUNTIME_IGNOREDOTFILES=true":                          {false, true},
		"RUNTIME_WATCH_ROOT=false":                             {true, false},
		"RUNTIME_WATCH_ROOT=true RUNTIME_IGNOREDOTFILES=false": {true, true},
	} {
		if s, err := Read(from("RUNTIME_ROOT=/data " + text)); err != nil || s.DotFiles != want[0] || s.Siblings != want[1] {
			t.Errorf("%s: dot files %v, siblings %v, %v", text, s.DotFiles, s.Siblings, err)
		}
	}
}

// The format of the log is a text unless it is JSON, as Envoy's service has it: a deployment that starts there starts here.
func TestAnUnknownLogFormatIsText(t *testing.T) {
	for format, want := range map[string]bool{"xml": false, "text": false, "JSON": true} {
		if s, err := Read(from("RUNTIME_ROOT=/ LOG_FORMAT=" + format)); err != nil || s.LogJSON != want {
			t.Errorf("%s: %v, %v", format, s.LogJSON, err)
		}
	}
}

// HOST, PORT and the like are common names: alone they do not mean that Envoy's settings are in use.
func TestVariablesOfOtherProgramsAreIgnored(t *testing.T) {
	s, err := Read(from("HOST=laptop PORT=http LOG_LEVEL=loud REDIS_URL=x"))
	if err != nil || s.Deployed || s.HTTP != "" || s.Redis != "" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAPasswordInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("user:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(from("REDIS_SOCKET_TYPE=tcp REDIS_URL=a:1 REDIS_AUTH_FILE=" + file))
	if err != nil || s.Redis != "redis://user:secret@a:1" {
		t.Errorf("%s, %v", s.Redis, err)
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
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=/run/redis.sock",
	} {
		fields := strings.Fields(text)
		name, _, _ := strings.Cut(fields[len(fields)-1], "=")
		if _, err := Read(from(text)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
