package cli

import "github.com/spf13/cobra"

// redisTopic is a page of help without a command.
func redisTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "redis",
		Short: "How to write where Redis is",
		Long: `--redis, and the environment's ` + redisVariable + ` where there is no --redis, take one of

  host:port                                                       one server
  redis://[user:password@]host:port[/db]                          one server, or a replicated primary
  unix://[user:password@]/path/to/socket[?db=1]                   one server on this machine
  redis+sentinel://[user:password@]host:port,…/primary[/db]       the primary that Sentinels watch, by its name
  redis+cluster://[user:password@]host:port,…                     a Cluster, by some of its nodes

rediss in place of redis is TLS, to Sentinels too. Ports that are left out are 6379, and 26379 of
Sentinels. Valkey counts as Redis. User and password are those of an ACL; escape what URLs do not take
(/ is %2F, @ is %40). They are never printed.

Parameters follow after a question mark:

  tls_ca=FILE                     the authorities to trust, in PEM, in place of the system's
  tls_cert=FILE, tls_key=FILE     this client's certificate and key, in PEM
  skip_verify=true                take any certificate
  sentinel_username, sentinel_password
                                  for Sentinels, which have users of their own
  dial_timeout=1s, read_timeout=1s
                                  for connecting, and for an answer before the connection is given up
  protocol=3, client_name         protocol=2 is for what stands before a Redis and does not know RESP3
  pool_size=64                    connections that wait for replicas (sash serve --replicas)

Others of go-redis are for sash doctor only. Everything else shares one connection to each server: what is
decided at the same time travels together.

A failover is noticed within five seconds. Connections that cannot be made are tried again after 50 ms at
first and a second at most, with jitter; calls meanwhile fail at once. A connection on which nothing comes for
half a second is tried with a PING. A call that may have been charged is never sent again.

sash doctor looks at a Redis and says what to change.`,
		Example: `  redis://limiter:secret@10.0.0.7:6379
  redis+sentinel://limiter:secret@10.0.0.7,10.0.0.8,10.0.0.9/primary
  rediss+cluster://10.0.0.7,10.0.0.8:7000?tls_ca=/etc/redis/ca.pem`,
	}
}
