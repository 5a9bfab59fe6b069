package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service"
	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/telemetry"
)

const example = "the built-in example"

// Load reads a configuration, and also returns the fingerprint of its files. An empty Path means the built-in example.
func Load(source config.Source) (*config.Config, config.Fingerprint, error) {
	if source.Path != "" {
		return source.Load()
	}
	cfg, err := config.Parse(source.Defaults, false, config.File{Name: example, Text: service.Example})
	return cfg, config.Fingerprint{}, err
}

// Domain returns the domain that --domain names, or else the only domain.
func Domain(cfg *config.Config, flag string) (string, error) {
	names := cfg.Domains()
	if flag == "" && len(names) == 1 {
		return names[0], nil
	}
	if !slices.Contains(names, flag) {
		return "", fmt.Errorf("--domain %q: give one of %s", flag, strings.Join(names, ", "))
	}
	return flag, nil
}

func (s *instance) origin() string {
	if s.Management != nil {
		return "from the management server " + s.Management.Server
	}
	return cmp.Or(s.Config.Path, example)
}

func (s *instance) loadFirst() (cfg *config.Config, known config.Fingerprint, err error) {
	if s.Management != nil {
		cfg = config.None()
	} else {
		cfg, known, err = Load(s.Config)
	}
	s.loading.Note(err)
	switch {
	case err == nil:
		s.warnOf(cfg)
	case s.StartWithoutConfig:
		s.Log.Error("there is no configuration yet: every request is answered with an error", "error", err)
		return config.None(), known, nil
	}
	return cfg, known, err
}

// nameSecrets sets the keys under which secret values are named. A shared Redis requires them; in memory the process makes its own.
func (s *instance) nameSecrets() error {
	if s.Redis != "" || len(s.SecretKeys) > 0 {
		return s.decider.NameSecrets(s.SecretKeys...)
	}
	rules := s.decider.Config().Rules()
	if i := slices.IndexFunc(rules, func(r *config.Rule) bool { return len(r.Secrets) > 0 }); i >= 0 {
		s.Log.Info("SASH_SECRET_KEYS is not set: secret values have other names when this process starts again", "rule", rules[i].String())
	}
	return nil
}

// follow uses every later configuration until ctx ends. It waits for the first configuration of a management server,
// even an invalid one, unless StartWithoutConfig is set. Known is the fingerprint of the loaded files.
func (s *instance) follow(ctx context.Context, known config.Fingerprint) error {
	if s.Management == nil {
		if s.Config.Path != "" {
			s.Config.Watch(ctx, known, func(cfg *config.Config, err error) {
				if err == nil {
					err = s.use(cfg)
				}
				if err != nil {
					s.reject(err)
				}
			})
		}
		return nil
	}
	from := *s.Management
	from.Defaults, from.Merge = s.Config.Defaults, s.Config.Merge
	from.Lost = func(err error) {
		s.Log.Warn("the management server is away: the last valid configuration stays in use", "server", from.Server, "error", err)
	}
	first := make(chan struct{})
	once := sync.OnceFunc(func() { close(first) })
	err := from.Watch(ctx, func(cfg *config.Config) error { defer once(); return s.use(cfg) }, func(err error) { s.reject(err); once() })
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

// use makes a valid configuration the decider's, unless the decider returns an error for it.
func (s *instance) use(cfg *config.Config) error {
	removed := config.Removed(s.decider.Config(), cfg)
	if err := s.decider.Use(cfg); err != nil {
		return err
	}
	s.stats.Use(cfg)
	s.loading.Note(nil)
	s.stats.Service.ConfigLoaded.Add(1)
	s.warnOf(cfg)
	if n := len(removed); n > 0 {
		if most := 20; n > most {
			removed = append(removed[:most], "…")
		}
		s.Log.Warn("rules were removed from the configuration: what only they limited is unlimited", "removed", n, "rules", strings.Join(removed, ", "))
	}
	s.Log.Info("the configuration was changed", "domains", strings.Join(cfg.Domains(), ", "), "rules", len(cfg.Rules()))
	return nil
}

func (s *instance) reject(err error) {
	defer s.loading.Note(err) // readers of the error on the admin port find its line in the log
	s.stats.Service.ConfigErrors.Add(1)
	if s.decider.Config().Loaded() {
		s.Log.Error("the changed configuration is wrong: the last valid one stays in use", "error", err)
	} else {
		s.Log.Error("the first configuration is wrong: until there is a valid one, every request is answered with an error", "error", err)
	}
}

func (s *instance) warnOf(cfg *config.Config) {
	for _, warning := range cfg.Warnings() {
		s.Log.Warn("the configuration may not be what was meant", "warning", warning)
	}
}

// DefaultDrainDelay is the drain delay of sash serve. Kubernetes, and load balancers that check health every second, notice sooner.
const DefaultDrainDelay = 5 * time.Second

// DefaultMaxConnections bounds the connections of each of HTTP, gRPC and RESP.
const DefaultMaxConnections = 4096

// DefaultHomeBudget is the time that the home has for one decision: a few trips over an ocean.
const DefaultHomeBudget = time.Second

// Options for Run. The zero value serves the built-in example from memory, over HTTP on a free port. No number is negative.
type Options struct {
	envoy.Variables // Run sets Timeout, Access, Stats, Draining and Log of Protocol and Server

	// HTTP, GRPC, RESP and Admin are the addresses to listen on: host:port, with port 0 for a free one, or unix:///path.
	// If GRPC, RESP or Admin is empty, that port is closed. If HTTP is empty, Run takes a free port.
	HTTP, GRPC, RESP, Admin string
	TLS, TLSOfRESP          *tls.Config // of HTTP and of RESP; nil is plain text. Server has gRPC's
	// MaxConnections bounds the connections of each of HTTP, gRPC and RESP, as do few descriptors. Zero is DefaultMaxConnections.
	MaxConnections int
	MaxWait        time.Duration // bounds wait_up_to of a request, up to a day; zero allows no waiting
	// AccessFile lists the callers of the HTTP, gRPC and RESP addresses and their rights. Without it, everyone may
	// decide, and nobody may give units back or set a request limit. If Protocol has a Counting, everyone may do both.
	AccessFile  string
	AdminTLS    *tls.Config  // nil is plain text
	AdminAccess admin.Access // who may change things and see subjects at the admin address; the zero value allows nobody

	Redis string // the URL of the store; empty is this process's memory
	// Home is the Redis that all regions share. Rules with scope: global need it, and this region's Redis.
	Home          string
	HomeBudget    time.Duration // that the home has for one decision, trip included; zero is DefaultHomeBudget
	Budget        time.Duration // that Redis has for one decision; zero is failover.DefaultBudget
	OpenPerSecond int64         // the most units that on_unavailable: open lets through; zero is all
	Instances     int           // the least number that share the limits; Redis counts the rest
	Replicas      int           // how many replicas of Redis must confirm a charge, within half of the budget
	// Memory bounds each store in memory: the one that decides without Redis, and the one of mode local.
	Memory memstore.Options

	// TokenKeys seal the tokens of reservations. The first key seals, and all open. If empty, this instance makes its own.
	TokenKeys [][]byte
	// SecretKeys name secret values: see decide.Decider.NameSecrets. Without them, a configuration with secret values
	// needs a store in memory, and the names hold for this process.
	SecretKeys [][]byte
	// DrainDelay is how long Run still answers, with health down, after its context has ended. If the cause is ErrInterrupted, it is zero.
	DrainDelay time.Duration
	Telemetry  telemetry.Options     // Run sets Log
	Log        *slog.Logger          // for operators; nil is slog.Default
	Listening  func(Listening) error // called once, after all ports are open and before they answer; its error ends Run
}

// Listening describes a service with open ports.
type Listening struct {
	HTTP, GRPC, RESP, Admin net.Addr // in use; all but HTTP are nil if closed
	Store, ConfigName       string   // for people: where charges are kept, and where the configuration comes from
	Config                  *config.Config
	Open                    []Opening // the addresses in use
}

// An Opening is an address. For people, it says who reaches the address and what they may do there without credentials.
type Opening struct{ Name, Addr, To string }
