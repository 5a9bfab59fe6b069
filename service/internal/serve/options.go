package serve

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/telemetry"
)

// DefaultDrainDelay is that of sash serve: load balancers that check health every second, and Kubernetes, notice sooner.
const DefaultDrainDelay = 5 * time.Second

// DefaultMaxConnections bounds the connections of HTTP, of gRPC and of RESP, each.
const DefaultMaxConnections = 4096

// DefaultHomeBudget is the time that the home has for one decision: a few trips over an ocean.
const DefaultHomeBudget = time.Second

// Options for Run. The zero value serves the built-in example from this process's memory, over HTTP on a free port.
// Durations and counts must not be negative.
type Options struct {
	// Config is the file or directory of the configuration, which is loaded again when it changes. An empty Path is
	// the built-in example.
	Config config.Source
	// Management is a server that sends the configuration, in place of Config. Nil is none.
	Management *envoy.Source
	// StartWithoutConfig starts although there is no valid configuration yet. Requests are answered with an error until
	// there is one.
	StartWithoutConfig bool

	// HTTP, GRPC, RESP and Admin are the addresses to listen on: host:port, with port 0 for a free one, or unix:///path.
	// Without GRPC, RESP or Admin that port is closed; without HTTP a free port is taken.
	HTTP, GRPC, RESP, Admin string
	// TLS makes the HTTP address HTTPS. Nil is plain HTTP. Server has that of gRPC.
	TLS *tls.Config
	// TLSOfRESP encrypts RESP. Nil is plain text.
	TLSOfRESP *tls.Config
	// MaxConnections bounds the connections of HTTP, of gRPC and of RESP, each. Zero is DefaultMaxConnections. Where the
	// process may have few descriptors the bound is lower.
	MaxConnections int
	// MaxWait bounds how long a request can wait (wait_up_to), up to a day. Zero is not at all.
	MaxWait time.Duration
	// AccessFile lists the callers of the HTTP, gRPC and RESP addresses and their rights. Empty is none: everyone may decide,
	// and nobody may give units back or set its own limit, unless Protocol has a Counting: then everyone may.
	AccessFile string
	// AdminTLS makes the admin address HTTPS. Nil is plain HTTP.
	AdminTLS *tls.Config
	// AdminAccess says who may change things and see subjects at the admin address. The zero value lets nobody.
	AdminAccess admin.Access
	// Server configures the gRPC server; Run sets Draining and Log.
	Server rls.Server
	// Protocol configures answers to Envoy; Run sets Timeout, Access, Stats and Log.
	Protocol rls.Options

	// Redis is the URL of the store. Empty is this process's memory.
	Redis string
	// RedisPrefix begins all keys on Redis. Empty is that of package redisstore.
	RedisPrefix string
	// Home is the Redis that all regions share, for rules with scope: global. Without one such a rule is an error.
	// They need Redis, the one of this region.
	Home string
	// HomeBudget is the time that the home has for one decision, and so more than a trip there. Zero is DefaultHomeBudget.
	HomeBudget time.Duration
	// Budget is the time that Redis has for one decision. Zero is failover.DefaultBudget.
	Budget time.Duration
	// OpenPerSecond is the most units that on_unavailable: open lets through in a second. Zero is all.
	OpenPerSecond int64
	// Instances is the least number of instances that share the limits; Redis counts the rest. Zero is none known.
	Instances int
	// Replicas is how many replicas of Redis must confirm a charge, within half of the budget. Zero waits for none.
	Replicas int
	// ReadyNeedsRedis makes /healthcheck and gRPC health fail while Redis does not answer, and ReadyNeedsConfig while no
	// domain is configured.
	ReadyNeedsRedis, ReadyNeedsConfig bool
	// Memory is the size of the store in memory, and what happens when it is full: of the one that decides without
	// Redis, and of mode local's.
	Memory memstore.Options

	// TokenKeys seal the tokens of reservations: the first seals, and all open. Instances with the same settle each
	// other's. Empty is a key of this instance's own.
	TokenKeys [][]byte
	// SecretKeys name secret values: see decide.Decider.NameSecrets. With none, a configuration with secret values needs a
	// store in memory, and names hold for this process.
	SecretKeys [][]byte
	// DrainDelay is how long Run answers with health down after its context has ended, unless the cause is ErrInterrupted.
	DrainDelay time.Duration
	// NearLimit is the share of a limit from which calls count as near it, above 0 and at most 1. Zero is that of
	// package stats.
	NearLimit float64
	// Milliseconds makes the response time in Prometheus count in milliseconds instead of seconds.
	Milliseconds bool
	// Telemetry configures where metrics and traces are exported and which refusals are logged; Run sets Log.
	Telemetry telemetry.Options
	// Log receives what an operator should know. Nil is slog.Default.
	Log *slog.Logger
	// Listening is called once, when all ports are open and before they answer. Its error ends Run. Nil is none.
	Listening func(Listening) error
}

// Listening describes a service that has opened its ports.
type Listening struct {
	// HTTP, GRPC, RESP and Admin are the addresses in use. All but HTTP are nil if closed.
	HTTP, GRPC, RESP, Admin net.Addr
	// Store and ConfigName say for people where charges are kept and where the configuration comes from.
	Store, ConfigName string
	Config            *config.Config
	// Open has the addresses in use.
	Open []Opening
}

// An Opening is an address, and for people who reaches it and what they may do there without credentials.
type Opening struct{ Name, Addr, To string }
