package cli

import (
	"errors"
	"fmt"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/redisclient"
)

// redisVariable is the environment variable for commands that are not given --redis.
const redisVariable = "SASH_REDIS"

const redisUsage = "Redis `URL`: host:port, redis://[user:password@]host:port[/db], redis+sentinel://…, redis+cluster://…, rediss://… or unix:///path (see sash help redis)"

// A remote is a store on Redis, with its client.
type remote struct {
	store   *redisstore.Store
	client  *redisclient.Client
	address string // without the password
}

// connect makes a store on Redis. It does no I/O.
func connect(url string) (*remote, error) {
	client, err := redisclient.New(url)
	if err != nil {
		return nil, err
	}
	return &remote{client.Store(nil), client, client.String()}, nil
}

// explain names the address in an error.
func (r *remote) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis at %s: %w", r.address, err)
}

func (r *remote) close() { r.client.Close() }

// redisURL is --redis, or else the environment's.
func (a *app) redisURL(flag string) string {
	if flag != "" {
		return flag
	}
	return a.env(redisVariable)
}

// shared makes the store of a command that needs one which outlives it.
func (a *app) shared(flag string) (*remote, error) {
	url := a.redisURL(flag)
	if url == "" {
		return nil, errors.New("give --redis or set " + redisVariable + ": without Redis the charges would be in this process, and forgotten when it exits")
	}
	return connect(url)
}
