package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"example.com/sash/service"
	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/candidates"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/envoyenv"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/live"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/telemetry"
	"example.com/sash/service/internal/top"
)

// deployed takes what flags do not say from the environment of Envoy's rate limit service.
func (s *serving) deployed(env *envoyenv.Settings, given func(flag string) bool) {
	s.merge = s.merge || env.Merge
	if !env.Deployed {
		return
	}
	if given("config") {
		env.Management = nil
	}
	grpcAddr := env.GRPC
	if env.GRPCNetwork == "unix" {
		grpcAddr = "unix://" + env.GRPC
	}
	for _, setting := range []struct {
		flag, value string
		into        *string
	}{
		{"config", env.Config, &s.config},
		{"addr", env.HTTP, &s.addr},
		{"grpc-addr", grpcAddr, &s.grpcAddr},
		{"admin-addr", env.Admin, &s.admin},
		{"log-level", env.LogLevel, &s.level},
	} {
		if !given(setting.flag) {
			*setting.into = setting.value
		}
	}
}

// runServe serves until the context ends.
func (a *app) runServe(ctx context.Context, s *serving, env *envoyenv.Settings) error {
	log, err := a.logger(s, env.LogJSON)
	if err != nil {
		return err
	}
	for _, reason := range env.Ignored {
		log.Warn("a variable of the environment has no effect", "variable", reason)
	}
	source := config.Source{Path: s.config, Merge: s.merge}
	known := source.Fingerprint()
	name, cfg, err := begin(source, env)
	if err != nil && env.StartWithoutConfig {
		log.Error("there is no configuration yet: nothing is limited", "error", err)
		name, cfg = source.Path, config.Empty()
	} else if err != nil {
		return err
	}
	loading := &admin.Loading{}
	loading.Note(err)

	access, err := s.access(a.env)
	if err != nil {
		return err
	}
	secure, err := s.secure()
	if err != nil {
		return err
	}

	if err := s.checkDrain(); err != nil {
		return err
	}
	opts := &httpapi.Options{Draining: ctx.Done()}
	backend, err := a.backend(ctx, s, env, log, opts)
	if err != nil {
		return err
	}
	defer backend.done()
	store, where := backend.store, backend.where
	log = log.With("store", where)
	opts.Log = log
	if opts.TokenKey, err = a.tokenKey(backend.client != nil, log); err != nil {
		return err
	}
	decider, err := decide.New(cfg, store)
	if err != nil {
		return err
	}
	book := exceptions.New(decider, backend.client, env.RedisPrefix, log)
	book.Refresh(ctx) // so that the banned are not let through at first
	busiest := top.New()
	if access != (admin.Access{}) { // otherwise nobody may ask
		decider.Observe(busiest.Observe)
	}
	watched := live.New()
	if s.admin != "" {
		decider.Observe(watched.Observe)
	}
	counted := stats.New()
	decider.Observe(counted.Observer(env.NearLimitRatio))
	told, err := telemetry.Start(ctx, decider, counted, telemetry.Options{
		Env: a.env, Envoy: env.Telemetry, Refusals: s.logRefusals, Keys: s.showKeys, Log: log,
	})
	if err != nil {
		return err
	}
	defer told.Stop()
	counted.Service.ConfigLoaded.Add(1)
	decider.Observe(candidates.Watch(counted, log, s.showKeys))
	err = follow(ctx, source, known, env, log, func(cfg *config.Config, err error) { reload(decider, counted, loading, log, cfg, err) })
	if err != nil {
		return err
	}
	cfg = decider.Config()
	protocol := rls.New(decider, protocolOptions(s, env, counted, log))
	opts.JSON = protocol
	server := rls.Server{MaxConnectionAge: env.MaxConnectionAge, MaxConnectionAgeGrace: env.MaxConnectionAgeGrace, Draining: ctx.Done(), Log: log}
	if env.TLS {
		files := rls.TLSFiles{Cert: env.TLSCert, Key: env.TLSKey, ClientCA: env.TLSClientCA, ClientSAN: env.TLSClientSAN}
		if server.TLS, err = files.Config(); err != nil {
			return fmt.Errorf("TLS of gRPC (GRPC_SERVER_TLS_CERT and what belongs to it): %w", err)
		}
	}
	on, err := s.listen(ctx)
	if err != nil {
		return err
	}
	if err := a.announce(s, on, where, name, cfg); err != nil {
		on.close()
		return err
	}
	safe := func(h http.Handler) http.Handler {
		return httpapi.Recover(h, log, func() { counted.Service.Panics.Add(1) })
	}
	running := []func(context.Context) error{
		func(ctx context.Context) error {
			return httpapi.Serve(ctx, on.http, safe(told.Handler(httpapi.New(decider, opts))), log)
		},
	}
	running = append(running, book.Run)
	if backend.run != nil {
		running = append(running, backend.run)
	}
	if on.grpc != nil {
		running = append(running, func(ctx context.Context) error { return server.Serve(ctx, on.grpc, protocol) })
	}
	if on.admin != nil {
		s.warn(log, on.admin.Addr(), &access)
		if secure != nil {
			on.admin = tls.NewListener(on.admin, secure)
		}
		quiet := slog.New(slog.DiscardHandler)
		handler := admin.New(decider, &admin.Options{
			Access: access, Counted: counted, Loading: loading, Exceptions: book, Top: busiest, Store: backend.report, Log: log,
			Live: watched, Charges: backend.charges,
		})
		running = append(running, watched.Run, func(ctx context.Context) error { return httpapi.Serve(ctx, on.admin, safe(handler), quiet) })
	}
	late, end := s.drain(ctx, log)
	defer end()
	return together(late, running)
}

// together runs all until the context ends or one of them does.
func together(ctx context.Context, all []func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, run := range all {
		wg.Go(func() {
			defer stop()
			errs[i] = run(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reload puts a configuration that was read again into use, or says why not.
func reload(decider *decide.Decider, counted *stats.Registry, loading *admin.Loading, log *slog.Logger, cfg *config.Config, err error) {
	if err == nil {
		err = decider.Use(cfg)
	}
	loading.Note(err)
	if err != nil {
		counted.Service.ConfigErrors.Add(1)
		log.Error("the configuration was changed and is wrong: the last good one stays in use", "error", err)
		return
	}
	counted.Service.ConfigLoaded.Add(1)
	log.Info("the configuration was changed", "domains", strings.Join(cfg.Domains(), ", "), "rules", len(cfg.Rules()))
}

func protocolOptions(s *serving, env *envoyenv.Settings, counted *stats.Registry, log *slog.Logger) *rls.Options {
	opts := &rls.Options{Timeout: s.patience(), Shadow: env.Shadow, Metadata: env.Metadata, Stats: counted, Log: log}
	if s.chargeEach {
		opts.Charging = decide.Each
	}
	if env.HeaderLimit != "" {
		opts.Headers = &rls.Headers{Limit: env.HeaderLimit, Remaining: env.HeaderRemaining, Reset: env.HeaderReset}
	}
	return opts
}

// listeners are what the service listens on; grpc and admin may be nil.
type listeners struct{ http, grpc, admin net.Listener }

func (on *listeners) close() {
	for _, l := range []net.Listener{on.http, on.grpc, on.admin} {
		if l != nil {
			_ = l.Close()
		}
	}
}

func (s *serving) listen(ctx context.Context) (*listeners, error) {
	on := &listeners{}
	for _, want := range []struct {
		flag, addr string
		into       *net.Listener
	}{{"--addr", s.addr, &on.http}, {"--grpc-addr", s.grpcAddr, &on.grpc}, {"--admin-addr", s.admin, &on.admin}} {
		if want.addr == "" && want.into != &on.http {
			continue
		}
		network := "tcp"
		if path, local := strings.CutPrefix(want.addr, "unix://"); local {
			network, want.addr = "unix", path
			if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
				_ = os.Remove(path) // of a process that was killed; one that is alive keeps its connections
			}
		}
		l, err := new(net.ListenConfig).Listen(ctx, network, want.addr)
		if err != nil {
			on.close()
			return nil, fmt.Errorf("cannot listen on %s: %w (choose another with %s)", want.addr, err, want.flag)
		}
		*want.into = l
	}
	return on, nil
}

// load reads a configuration; no path is the example.
func load(source config.Source) (name string, cfg *config.Config, err error) {
	if source.Path != "" {
		cfg, err = source.Load()
		return source.Path, cfg, err
	}
	name = "the built-in example"
	cfg, err = config.Parse(name, service.Example)
	return name, cfg, err
}
