// Package redisclient makes the Redis client that the command uses, from a URL.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// timeout bounds connecting, and each read and write. A decision takes well under a millisecond of the
// server's time: one that takes a second is not coming.
const timeout = time.Second

const forms = "write redis://[user:password@]host:port[/db], rediss://… for TLS, unix:///path/to/socket, or host:port"

// New returns a client for a Redis URL, or a plain host:port, and the address for messages, which never
// has the password. It does not connect.
func New(url string) (client *redis.Client, address string, err error) {
	opts, err := parse(url)
	if err != nil {
		return nil, "", err
	}
	// What the URL says as parameters (?read_timeout=3s) stays.
	for _, t := range []*time.Duration{&opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout, &opts.PoolTimeout} {
		if *t == 0 {
			*t = timeout
		}
	}
	if opts.PoolSize == 0 {
		opts.PoolSize = 64
	}
	opts.ContextTimeoutEnabled = true
	// One try to connect: a call that fails is answered now, and the next one tries again.
	opts.DialerRetries = 1
	// Only what a user with few rights may send: no CLIENT commands on connecting.
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opts), opts.Addr, nil
}

func parse(url string) (*redis.Options, error) {
	if url == "" {
		return nil, errors.New("the Redis address is empty: " + forms)
	}
	given := url
	if !strings.Contains(url, "://") {
		if host, port, err := net.SplitHostPort(url); err != nil || host == "" && port == "" {
			return nil, errors.New(describe(url) + "is not a Redis address: " + forms)
		}
		url = "redis://" + url
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New(describe(given) + "is not a Redis URL: " + forms)
	}
	return opts, nil
}

// describe names a URL that could not be read, unless it might hold a password.
func describe(url string) string {
	if strings.Contains(url, "@") {
		return "what was given "
	}
	return `"` + url + `" `
}

// Log sends what the client reports on its own, such as connections that broke, to a logger at the
// level of debugging. It concerns every client of the process.
func Log(to *slog.Logger) { redis.SetLogger(logger{to}) }

type logger struct{ to *slog.Logger }

// Printf implements the client's interface.
func (l logger) Printf(ctx context.Context, format string, args ...any) {
	if l.to.Enabled(ctx, slog.LevelDebug) {
		l.to.DebugContext(ctx, "redis client", "says", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
