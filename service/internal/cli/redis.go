package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/redisclient"
)

// redisVariable is the environment variable for commands without --redis.
const redisVariable = "SASH_REDIS"

// homeVariable is the environment variable for commands without --home.
const homeVariable = "SASH_HOME"

// redisFlag adds --redis for a command that uses the environment otherwise.
func redisFlag(f *pflag.FlagSet, into *string) {
	f.StringVar(into, "redis", "", "`URL` of Redis, such as redis://user:password@host:6379: see sash help redis (default: $"+redisVariable+")")
}

// redisURL returns the flag's URL, or else the environment's.
func (a *app) redisURL(flag string, env *envoy.Settings) string {
	return cmp.Or(flag, a.env(redisVariable), env.Redis)
}

// A remote is a store on Redis and its client.
type remote struct {
	prefix  string // of all keys
	store   *redisstore.Store
	client  *redisclient.Client
	address string // without the password
}

// shared returns the store of a command whose charges must outlive it: the one on which sash serve decides in the same
// environment. It does no I/O.
func (a *app) shared(flag string) (*remote, error) {
	env, err := envoy.Read(a.env)
	if err != nil {
		return nil, err
	}
	url := a.redisURL(flag, env)
	if url == "" {
		return nil, errors.New("give --redis or set " + redisVariable + ": without Redis the charges would be in this process, and forgotten when it exits")
	}
	client, err := redisclient.New(url)
	if err != nil {
		return nil, err
	}
	prefix := cmp.Or(env.RedisPrefix, redisstore.DefaultPrefix)
	return &remote{prefix, client.Store(&redisstore.Options{Prefix: prefix}), client, client.String()}, nil
}

// explain adds the address to an error.
func (r *remote) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis at %s: %w", r.address, err)
}

func (r *remote) close() { r.client.Close() }

// redisTopic is a page of help without a command.
func redisTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "redis",
		Short: "How to write the address of Redis",
		Long: `--redis, or $` + redisVariable + ` without it, is one of

  host:port                                                    one server
  redis://[user:password@]host:port[/db]                       one server, or a replicated primary
  unix://[user:password@]/path/to/socket[?db=1]                one server on this machine
  redis+sentinel://[user:password@]host:port,…/primary[/db]    the primary that Sentinels watch
  redis+cluster://[user:password@]host:port,…                  a Cluster, by some of its nodes

rediss in place of redis is TLS, to Sentinels too. The default port is 6379, and 26379 for
Sentinels. Valkey works like Redis. User and password are those of an ACL; escape what a URL does
not take (/ is %2F, @ is %40). They are never printed.

Parameters follow a question mark:

  tls_ca=FILE                     authorities to trust, in PEM, instead of the system's
  tls_cert=FILE, tls_key=FILE     this client's certificate and key, in PEM
  skip_verify=true                accept any certificate
  sentinel_username, sentinel_password
                                  for Sentinels, which have users of their own
  dial_timeout=1s, read_timeout=1s
                                  to connect, and to wait for an answer before the connection is
                                  given up
  protocol=3, client_name         protocol=2 is for proxies that do not speak RESP3
  pool_size=64                    connections that wait for replicas (sash serve --replicas)

There is one connection to each server, on which concurrent decisions travel together.

A failover is noticed within five seconds. The client tries to reconnect after 50 ms at first and a
second at most, with jitter; calls fail at once meanwhile. It sends a PING on a connection that is
silent for half a second. It never sends a call again that may have been charged.

Keys begin with ` + redisstore.DefaultPrefix + `, or with CACHE_KEY_PREFIX in the environment of Envoy's rate limit
service, whose variables name the Redis too (see docs/envoy.md). All commands read them as sash
serve does.

sash doctor checks a Redis and says what to change.`,
		Example: `  redis://limiter:secret@10.0.0.7:6379
  redis+sentinel://limiter:secret@10.0.0.7,10.0.0.8,10.0.0.9/primary
  rediss+cluster://10.0.0.7,10.0.0.8:7000?tls_ca=/etc/redis/ca.pem`,
	}
}
