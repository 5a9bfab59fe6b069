package serve

import (
	"context"
	"fmt"
	"sync"

	"example.com/sash/service"
	"example.com/sash/service/internal/config"
)

// Load reads a configuration and returns a name for it. An empty Path is the built-in example.
func Load(source config.Source) (name string, cfg *config.Config, err error) {
	if source.Path != "" {
		cfg, err = source.Load()
		return source.Path, cfg, err
	}
	name = "the built-in example"
	cfg, err = config.ParseBy(source.Defaults, false, config.File{Name: name, Text: service.Example})
	return name, cfg, err
}

// loadFirst returns the configuration to start with.
func (s *instance) loadFirst() (name string, cfg *config.Config, err error) {
	if s.Management != nil {
		name, cfg = "from the management server "+s.Management.Server, config.None()
	} else {
		name, cfg, err = Load(s.Config)
	}
	s.loading.Note(err)
	if err == nil {
		s.warnOf(cfg)
	}
	if err != nil && s.StartWithoutConfig {
		s.Log.Error("there is no configuration yet: every request is answered with an error", "error", err)
		return s.Config.Path, config.None(), nil
	}
	return name, cfg, err
}

// nameSecrets has secret values named under the keys. A store that outlives this process, or has others beside it, needs
// some; otherwise a key of this process will do.
func (s *instance) nameSecrets() error {
	if s.Redis != "" || s.Snapshot != "" || len(s.SecretKeys) > 0 {
		return s.decider.NameSecrets(s.SecretKeys...)
	}
	for _, rule := range s.decider.Config().Rules() {
		if len(rule.Secrets) > 0 {
			s.Log.Info("SASH_SECRET_KEYS is not set: secret values have other names when this process starts again", "rule", rule.String())
			break
		}
	}
	return nil
}

// follow uses every later configuration, until ctx ends. It waits for what a management server sends first, also
// if it is wrong, unless the service may start without. Known is the fingerprint of the files from before they were loaded.
func (s *instance) follow(ctx context.Context, known config.Fingerprint) error {
	switch {
	case s.Management != nil:
		return s.followManagement(ctx)
	case s.Config.Path == "":
		return nil
	}
	if err := s.Config.Watch(ctx, known, s.reload); err != nil {
		return fmt.Errorf("watching the configuration: %w", err)
	}
	return nil
}

func (s *instance) followManagement(ctx context.Context) error {
	from := *s.Management
	from.Defaults, from.Merge = s.Config.Defaults, s.Config.Merge
	from.Lost = func(err error) {
		s.Log.Warn("the management server is away: the last valid configuration stays in use", "server", from.Server, "error", err)
	}
	first := make(chan struct{})
	once := sync.OnceFunc(func() { close(first) })
	use := func(cfg *config.Config) error {
		err := s.use(cfg)
		if err == nil {
			once()
		}
		return err
	}
	err := from.Watch(ctx, use, func(err error) { s.reject(err); once() })
	if err != nil || s.StartWithoutConfig {
		return err
	}
	s.Log.Info("waiting for the first configuration", "server", from.Server)
	select {
	case <-first:
	case <-ctx.Done():
	}
	return nil
}
