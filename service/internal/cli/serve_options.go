package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/serve"
)

// Secrets come from variables and not from flags, which show in lists of processes.
const (
	adminTokenVariable = "SASH_ADMIN_TOKEN"
	tokenKeyVariable   = "SASH_TOKEN_KEY" // seals the tokens of reservations
	secretKeysVariable = "SASH_SECRET_KEYS"
)

// Variables are defaults that the image sets, as flags would take precedence over the variables of Envoy's rate limit
// service.
const (
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
	s.opts.Telemetry.Env = a.env
	if err := s.fromImage(a.env, env.Deployed, given); err != nil {
		return s.opts, err
	}
	if err := s.fromEnvoy(env, given); err != nil {
		return s.opts, err
	}
	if err := s.check(); err != nil {
		return s.opts, err
	}
	if s.opts.Log, err = a.logger(s.level, s.json || env.LogJSON && !given("json")); err != nil {
		return s.opts, err
	}
	if err := s.encryption(env); err != nil {
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

// fromImage takes the defaults of the image.
func (s *serving) fromImage(env func(string) string, deployed bool, given func(flag string) bool) error {
	format := env(formatVariable)
	if format != "" && format != "json" && format != "text" {
		return fmt.Errorf("environment variable %s=%s: use json or text", formatVariable, format)
	}
	if !given("config") {
		s.opts.Config.Path = env(configVariable)
	}
	if !given("json") && !(deployed && env("LOG_FORMAT") != "") {
		s.json = format == "json"
	}
	return nil
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

// fromEnvoy takes what the environment of Envoy's rate limit service says.
func (s *serving) fromEnvoy(env *envoy.Settings, given func(flag string) bool) error {
	o := &s.opts
	o.Config.Merge = env.Merge
	o.StartWithoutConfig = env.StartWithoutConfig
	o.RedisPrefix, o.NearLimit = env.RedisPrefix, env.NearLimitRatio
	o.ReadyNeedsRedis, o.ReadyNeedsConfig = env.HealthNeedsRedis, env.HealthNeedsConfig
	o.Telemetry.Exporters, o.Milliseconds = env.Telemetry, env.Milliseconds
	if env.Algorithm != "" {
		if err := o.Config.Defaults.Algorithm.UnmarshalText([]byte(env.Algorithm)); err != nil {
			return fmt.Errorf("SASH_ALGORITHM: %w", err)
		}
	}
	if env.Compatible {
		s.compatible(env)
	}
	o.Protocol.Shadow, o.Protocol.Quota, o.Protocol.Metadata = env.Shadow, env.Quota, env.Metadata
	if env.HeaderLimit != "" {
		o.Protocol.Headers = &rls.Headers{Limit: env.HeaderLimit, Remaining: env.HeaderRemaining, Reset: env.HeaderReset}
	}
	o.Server = rls.Server{MaxConnectionAge: env.MaxConnectionAge, MaxConnectionAgeGrace: env.MaxConnectionAgeGrace}
	if !env.Deployed {
		return nil
	}
	grpcAddr := env.GRPC
	if env.GRPCNetwork == "unix" {
		grpcAddr = "unix://" + env.GRPC
	}
	for _, setting := range []struct {
		flag, value string
		into        *string
	}{
		{"config", env.Config, &o.Config.Path},
		{"addr", env.HTTP, &o.HTTP},
		{"grpc-addr", grpcAddr, &o.GRPC},
		{"admin-addr", env.Admin, &o.Admin},
		{"log-level", env.LogLevel, &s.level},
	} {
		if !given(setting.flag) {
			*setting.into = setting.value
		}
	}
	if !given("config") {
		o.Config.DotFiles, o.Config.Siblings, o.Management = env.DotFiles, env.Siblings, env.Management
	}
	return nil
}

// compatible makes clients see what Envoy's service answers.
func (s *serving) compatible(env *envoy.Settings) {
	if env.Algorithm == "" {
		s.opts.Config.Defaults.Algorithm = sash.FixedWindow
	}
	s.opts.Config.Defaults.CountRefused = true
	s.opts.Protocol.Counting = &decide.Counting{Stop: env.Stop}
	if env.LocalCache > 0 {
		s.opts.Protocol.Counting.Over = decide.NewOverLimit(env.LocalCache)
	}
}

// check returns what is wrong with the flags.
func (s *serving) check() error {
	o := &s.opts
	switch {
	case o.Budget <= 0:
		return fmt.Errorf("--budget %v: give a time above zero, such as 50ms", o.Budget)
	case o.HomeBudget <= 0:
		return fmt.Errorf("--home-budget %v: give a time above zero, more than a trip to the home, such as 1s", o.HomeBudget)
	case o.Home != "" && o.Redis == "":
		return errors.New("--home: units of all regions are leased by way of the Redis of this region: give --redis too")
	case o.OpenPerSecond < 0:
		return fmt.Errorf("--open-per-second %d: give the most units of a second, or 0 for no ceiling", o.OpenPerSecond)
	case o.Instances < 0:
		return fmt.Errorf("--instances %d: give the least number of instances that share the limits, or 0 if Redis alone counts them", o.Instances)
	case o.Replicas < 0:
		return fmt.Errorf("--replicas %d: give how many replicas must confirm an admission, or 0 to wait for none", o.Replicas)
	case o.Memory.MaxKeys < 1:
		return fmt.Errorf("--memory-max-subjects %d: give the most subjects to hold in memory, such as %d", o.Memory.MaxKeys, memstore.DefaultMaxKeys)
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
	if s.maxRulesRemoved >= 0 {
		o.MaxRulesRemoved = &s.maxRulesRemoved
	}
	return nil
}

// encryption reads the certificate of the HTTP, gRPC and RESP addresses. gRPC has that of Envoy's variables, if they name one.
func (s *serving) encryption(env *envoy.Settings) (err error) {
	if env.TLS {
		files := access.TLSFiles{Cert: env.TLSCert, Key: env.TLSKey, ClientCA: env.TLSClientCA, ClientSAN: env.TLSClientSAN, Log: s.opts.Log}
		if s.opts.Server.TLS, err = files.Config(); err != nil {
			return fmt.Errorf("TLS of gRPC (GRPC_SERVER_TLS_CERT and related variables): %w", err)
		}
	}
	if s.cert == "" {
		return nil
	}
	files := access.TLSFiles{Cert: s.cert, Key: s.key, ClientCA: s.clientCA, Log: s.opts.Log}
	if s.opts.Server.TLS == nil {
		s.opts.Server.TLS, err = files.Config()
	}
	if err == nil {
		files.Protocols = []string{"h2", "http/1.1"}
		s.opts.TLS, err = files.Config()
	}
	if err == nil {
		files.Protocols = []string{}
		s.opts.TLSOfRESP, err = files.Config()
	}
	if err != nil {
		return fmt.Errorf("TLS of HTTP and gRPC, and of RESP (--tls-cert and related flags): %w", err)
	}
	return nil
}

// administration reads who may use the admin address, and its certificate.
func (s *serving) administration(tokens string) (err error) {
	who := &s.opts.AdminAccess
	if who.Tokens, err = adminTokens("--admin-token-file", s.adminTokenFile, tokens); err != nil {
		return err
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

// adminTokens returns the tokens in the file that a flag names, one a line, or without a file those of the variable,
// separated by commas.
func adminTokens(flag, file, variable string) (tokens []string, err error) {
	all := strings.Split(variable, ",")
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = strings.Split(string(text), "\n")
	}
	for _, token := range all {
		if token = strings.TrimSpace(token); token != "" {
			tokens = append(tokens, token)
		}
	}
	if file != "" && len(tokens) == 0 {
		return nil, fmt.Errorf("%s: %s is empty", flag, file)
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
