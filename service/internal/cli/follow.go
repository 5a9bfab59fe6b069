package cli

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/envoyenv"
	"example.com/sash/service/internal/xds"
)

// begin returns the configuration to begin with.
func begin(source config.Source, env *envoyenv.Settings) (name string, cfg *config.Config, err error) {
	if env.Management != nil {
		return "from the management server " + env.Management.Server, config.Empty(), nil
	}
	return load(source)
}

// follow calls changed with each configuration that comes after the first, or with what is wrong with it. From
// a management server it waits for the first one, unless the environment says not to. Known is of the files before
// they were loaded.
func follow(ctx context.Context, source config.Source, known config.Fingerprint, env *envoyenv.Settings, log *slog.Logger, changed func(*config.Config, error)) error {
	if env.Management == nil {
		if source.Path == "" {
			return nil
		}
		if err := source.Watch(ctx, known, changed); err != nil {
			return fmt.Errorf("watching the configuration: %w", err)
		}
		return nil
	}
	m := env.Management
	from := xds.Source{Server: m.Server, Node: m.Node, Headers: m.Headers, Retry: m.Retry}
	from.Lost = func(err error) {
		log.Warn("the management server is away: the last good configuration stays in use", "server", m.Server, "error", err)
	}
	if m.TLS {
		var err error
		if from.TLS, err = xds.TLS(m.CA, m.Cert, m.Key, m.ServerName); err != nil {
			return err
		}
	}
	first := make(chan struct{})
	var once sync.Once
	err := from.Watch(ctx, func(cfg *config.Config, err error) {
		changed(cfg, err)
		if err == nil {
			once.Do(func() { close(first) })
		}
	})
	if err != nil || env.StartWithoutConfig {
		return err
	}
	log.Info("waiting for the first configuration", "server", m.Server)
	select {
	case <-first:
	case <-ctx.Done():
	}
	return nil
}
