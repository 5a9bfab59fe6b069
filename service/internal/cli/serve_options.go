package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/serve"
)

// Secrets come from variables and not from flags, which show in lists of processes.
const (
	adminTokenVariable = "SASH_ADMIN_TOKEN"
	tokenKeyVariable   = "SASH_TOKEN_KEY" // seals the tokens of reservations
	secretKeysVariable = "SASH_SECRET_KEYS"

	// Defaults that the image sets, as flags would take precedence over the variables of Envoy's rate limit service.
	configVariable = "SASH_CONFIG"
	formatVariable = "SASH_LOG_FORMAT"
)

// leastKey is the fewest bytes of a key: as many as the hash has.
const leastKey = 32

// options completes the options, which hold the flags, with the environment. Given reports whether a flag was given:
// then the environment does not change it. Replacing says that the program runs under the name of Envoy's rate
// limit service: then it reads all of that service's variables, whichever are set.
func (a *app) options(s *serving, replacing bool, given func(flag string) bool) (serve.Options, error) {
	if replacing {
		a.env = envoy.InPlace(a.env)
	}
	env, err := envoy.Read(a.env)
	if err != nil {
		return s.opts, err
	}
	s.opts.Redis = a.redisURL(s.opts.Redis, env)
	s.opts.Home = cmp.Or(s.opts.Home, a.env(homeVariable))
	if err := s.fromEnvironment(a.env, env, given); err != nil {
		return s.opts, err
	}
	if err := s.check(); err != nil {
		return s.opts, err
	}
	if s.opts.Log, err = a.logger(s.level, s.json || env.LogJSON && !given("json")); err != nil {
		return s.opts, err
	}
	if err := s.encryption(env.TLS); err != nil {
		return s.opts, err
	}
	if err := s.administration(a.env(adminTokenVariable)); err != nil {
		return s.opts, err
	}
	if s.opts.TokenKeys, err = keysOf(tokenKeyVariable, a.env(tokenKeyVariable)); err != nil {
		return s.opts, err
	}
	if s.opts.SecretKeys, err = keysOf(secretKeysVariable, a.env(secretKeysVariable)); err != nil {
		return s.opts, err
	}
	for _, reason := range env.Ignored {
		s.opts.Log.Warn("a variable of the environment has no effect", "variable", reason)
	}
	return s.opts, nil
}

func (a *app) logger(name string, asJSON bool) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return nil, fmt.Errorf("--log-level %q: give debug, info, warn or error", name)
	}
	opts := &slog.HandlerOptions{Level: level}
	if asJSON {
		return slog.New(slog.NewJSONHandler(a.err, opts)), nil
	}
	return slog.New(slog.NewTextHandler(a.err, opts)), nil
}

// fromEnvironment takes what flags do not say: of the image, and of the environment of Envoy's rate limit service.
func (s *serving) fromEnvironment(image func(string) string, env *envoy.Settings, given func(flag string) bool) error {
	o, path := &s.opts, s.opts.Config.Path
	o.Config, o.Protocol, o.Server = env.Config, env.Protocol, env.Server
	o.RedisPrefix, o.StartWithoutConfig = env.RedisPrefix, env.StartWithoutConfig
	o.ReadyNeedsRedis, o.ReadyNeedsConfig = env.ReadyNeedsRedis, env.ReadyNeedsConfig
	o.NearLimit, o.Milliseconds = env.NearLimit, env.Milliseconds
	o.Telemetry.Exporters, o.Telemetry.Env = env.Telemetry, image
	switch {
	case given("config"):
		o.Config = config.Source{Path: path, Merge: env.Config.Merge, Defaults: env.Config.Defaults}
	case env.Deployed:
		o.Management = env.Management
	default:
		o.Config.Path = image(configVariable)
	}
	format := image(formatVariable)
	if format != "" && format != "json" && format != "text" {
		return fmt.Errorf("environment variable %s=%s: use json or text", formatVariable, format)
	}
	if !given("json") && !(env.Deployed && image("LOG_FORMAT") != "") {
		s.json = format == "json"
	}
	if !env.Deployed {
		return nil
	}
	for flag, setting := range map[string]struct {
		into  *string
		value string
	}{"addr": {&o.HTTP, env.HTTP}, "grpc-addr": {&o.GRPC, env.GRPC}, "admin-addr": {&o.Admin, env.Admin}, "log-level": {&s.level, env.LogLevel}} {
		if !given(flag) {
			*setting.into = setting.value
		}
	}
	return nil
}

// check returns what is wrong with the flags.
func (s *serving) check() error {
	o := &s.opts
	switch {
	case o.Budget <= 0:
		return fmt.Errorf("--budget %v: give a time above zero, such as 50ms", o.Budget)
	case o.HomeBudget <= 0:
		return fmt.Errorf("--home-budget %v: give a time above zero, more than a trip to the home, such as 1s", o.HomeBudget)
	case o.OpenPerSecond < 0:
		return fmt.Errorf("--open-per-second %d: give the most units of a second, or 0 for no ceiling", o.OpenPerSecond)
	case o.Instances < 0:
		return fmt.Errorf("--instances %d: give the least number of instances that share the limits, or 0 if Redis alone counts them", o.Instances)
	case o.Replicas < 0:
		return fmt.Errorf("--replicas %d: give how many replicas must confirm an admission, or 0 to wait for none", o.Replicas)
	case o.Memory.MaxBytes < 1<<20:
		return fmt.Errorf("--memory-max-bytes %d: give the most bytes of subjects in memory, from 1048576 on", o.Memory.MaxBytes)
	case o.MaxWait < 0 || o.MaxWait > 24*time.Hour:
		return fmt.Errorf("--max-wait %v: give the longest wait of a request, from 0s (none waits) to 24h", o.MaxWait)
	case o.MaxConnections < 1:
		return fmt.Errorf("--max-connections %d: give the most connections of HTTP, of gRPC and of RESP, each, from 1 on", o.MaxConnections)
	case o.DrainDelay < 0:
		return fmt.Errorf("--drain-delay %v: give a time such as 5s, or 0 for none", o.DrainDelay)
	case o.Redis == "" && o.Replicas > 0:
		return errors.New("--replicas: only Redis has replicas: give --redis too")
	case (s.cert == "") != (s.key == "") || s.clientCA != "" && s.cert == "":
		return errors.New("--tls-cert and --tls-key belong together, and --tls-client-ca needs them")
	case (s.adminCert == "") != (s.adminKey == "") || s.adminClientCA != "" && s.adminCert == "":
		return errors.New("--admin-tls-cert and --admin-tls-key belong together, and --admin-client-ca needs them")
	}
	return nil
}

// encryption reads the certificate of the HTTP, gRPC and RESP addresses. gRPC has that of Envoy's variables, if they name one.
func (s *serving) encryption(ofGRPC *access.TLSFiles) (err error) {
	if ofGRPC != nil {
		ofGRPC.Log = s.opts.Log
		if s.opts.Server.TLS, err = ofGRPC.Config(); err != nil {
			return fmt.Errorf("TLS of gRPC (GRPC_SERVER_TLS_CERT and related variables): %w", err)
		}
	}
	if s.cert == "" {
		return nil
	}
	for _, port := range []struct {
		into      **tls.Config
		protocols []string
	}{{&s.opts.Server.TLS, nil}, {&s.opts.TLS, []string{"h2", "http/1.1"}}, {&s.opts.TLSOfRESP, []string{}}} {
		if *port.into != nil {
			continue
		}
		files := access.TLSFiles{Cert: s.cert, Key: s.key, ClientCA: s.clientCA, Protocols: port.protocols, Log: s.opts.Log}
		if *port.into, err = files.Config(); err != nil {
			return fmt.Errorf("TLS of HTTP and gRPC, and of RESP (--tls-cert and related flags): %w", err)
		}
	}
	return nil
}

// administration reads who may use the admin address, and its certificate.
func (s *serving) administration(tokens string) (err error) {
	who := &s.opts.AdminAccess
	if who.Tokens, err = adminTokens(s.adminTokenFile, tokens); err != nil {
		return err
	}
	if info, err := os.Stat(s.adminTokenFile); err == nil && info.Mode().Perm()&0o004 != 0 && runtime.GOOS != "windows" {
		s.opts.Log.Warn("every user of this machine can read the tokens: take that right from the others (chmod o-r)", "admin-token-file", s.adminTokenFile)
	}
	who.Certificates = s.adminClientCA != ""
	if s.adminCert != "" {
		files := access.TLSFiles{
			Cert: s.adminCert, Key: s.adminKey, ClientCA: s.adminClientCA, Protocols: []string{"h2", "http/1.1"}, Log: s.opts.Log,
		}
		if s.opts.AdminTLS, err = files.Config(); err != nil {
			return fmt.Errorf("TLS of the admin address (--admin-tls-cert and related flags): %w", err)
		}
	}
	return who.Check()
}

// adminTokens returns the tokens in a file, one a line, or without a file those of the variable, separated by commas.
func adminTokens(file, variable string) (tokens []string, err error) {
	all := strings.Split(variable, ",")
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
		all = strings.Split(string(text), "\n")
	}
	for _, token := range all {
		if token = strings.TrimSpace(token); token != "" {
			tokens = append(tokens, token)
		}
	}
	if file != "" && len(tokens) == 0 {
		return nil, fmt.Errorf("--admin-token-file: %s is empty", file)
	}
	return tokens, nil
}

// keysOf reads keys between commas. A fleet changes them in three rolling restarts, to "old,new", "new,old" and "new": no
// instance gets a token that it cannot open, or a ban whose subject it cannot name.
func keysOf(variable, text string) (keys [][]byte, err error) {
	if text == "" {
		return nil, nil
	}
	for key := range strings.SplitSeq(text, ",") {
		if key = strings.TrimSpace(key); len(key) < leastKey {
			return nil, fmt.Errorf("%s has a key of %d bytes, the one at %d: one that cannot be guessed has at least %d, such as from: openssl rand -base64 32; "+
				"several are separated by commas", variable, len(key), len(keys)+1, leastKey)
		}
		keys = append(keys, []byte(key))
	}
	return keys, nil
}
