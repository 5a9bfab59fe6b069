package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/redisclient"
)

// serving is the flags of sash serve.
type serving struct {
	config, redis, addr, level string
	json                       bool
}

func (a *app) serve() *cobra.Command {
	s := &serving{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer decisions over HTTP",
		Long: `Answer decisions over HTTP, by a configuration (see sash config) and on a store: this process's memory,
or a Redis that any number of instances share.

  POST /v1/allow   {"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}],"cost":1}

answers 200 when the call is allowed and 429, with Retry-After, when it is refused. Both have the same
body: allowed, remaining, retry_after and reset_after (seconds), refused_by (the limit's name or null),
limits (name, units, window in seconds, remaining) and at (the store's clock). Without a cost it is the
matching descriptor's, which is 1 unless configured. A request that matches no limit is allowed with
remaining null and limits []. Other answers are {"error":"…"}: 400 a wrong request, 404 an unknown
domain, 413 a body over 64 KiB, 415 not JSON, 422 a cost that could never fit, and 503 a store that
does not answer, in which case it is not known whether the call was charged.

  GET /healthz     200 {"status":"ok"}, or 503 when the store does not answer

Redis need not be there at the start, or stay: what needs it gets 503 until it answers, without a restart.

SIGTERM and interrupt end it when the requests in flight are done, after ten seconds at most. Anyone who
reaches the address can ask: the service has no authentication of its own.`,
		Example: `  sash serve
  sash serve --config limits.yaml --redis redis://127.0.0.1:6379 --addr 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runServe(cmd.Context(), s) },
	}
	f := cmd.Flags()
	f.StringVar(&s.config, "config", "", "configuration `file` (default: the built-in example, see sash config example)")
	f.StringVar(&s.redis, "redis", "", redisUsage+" (default: the environment's "+redisVariable+", or else this process's memory)")
	f.StringVar(&s.addr, "addr", ":8080", "`address` to listen on; port 0 takes a free one")
	f.StringVar(&s.level, "log-level", "info", "what to log to standard error: debug, info, warn or error")
	f.BoolVar(&s.json, "json", false, "say where it listens in JSON, and log in JSON")
	return cmd
}

func (a *app) runServe(ctx context.Context, s *serving) error {
	log, err := a.logger(s)
	if err != nil {
		return err
	}
	name, cfg, err := load(s.config)
	if err != nil {
		return err
	}
	opts := &httpapi.Options{Log: log}
	var store sash.Store = memstore.New(nil)
	where := "this process's memory: forgotten when it ends, and shared with nobody (--redis shares it)"
	if url := a.redisURL(s.redis); url != "" {
		redisclient.Log(log)
		to, err := connect(url)
		if err != nil {
			return err
		}
		defer to.close()
		if err := to.ping(ctx); err != nil && ctx.Err() == nil {
			log.Error("Redis does not answer: until it does there are no decisions, and calls get 503", "error", err)
		}
		store, where = to.store, "redis at "+to.address
		opts.Healthy = to.ping
		opts.Log = log.With("store", where)
	}
	decider, err := decide.New(cfg, store)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w (choose another with --addr)", s.addr, err)
	}
	if err := a.announce(s, listener.Addr(), where, name, cfg); err != nil {
		_ = listener.Close()
		return err
	}
	return httpapi.Serve(ctx, listener, httpapi.New(decider, opts), log)
}

func (a *app) logger(s *serving) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: it is debug, info, warn or error", s.level)
	}
	opts := &slog.HandlerOptions{Level: level}
	if s.json {
		return slog.New(slog.NewJSONHandler(a.err, opts)), nil
	}
	return slog.New(slog.NewTextHandler(a.err, opts)), nil
}

// load reads a configuration; no file is the example.
func load(file string) (name string, cfg *config.Config, err error) {
	name, text := file, service.Example
	if file == "" {
		name = "the built-in example"
	} else if text, err = os.ReadFile(file); err != nil {
		return "", nil, fmt.Errorf("reading the configuration: %w", err)
	}
	cfg, err = config.Parse(name, text)
	return name, cfg, err
}

// announce says where the service is and how to try it.
func (a *app) announce(s *serving, addr net.Addr, store, name string, cfg *config.Config) error {
	url := "http://" + reachable(addr)
	if s.json {
		return writeJSON(a.out, map[string]any{"url": url, "addr": addr.String(), "store": store, "configuration": name, "domains": cfg.Domains()})
	}
	_, err := fmt.Fprintf(a.out, "sash listens on %s\n  store          %s\n  configuration  %s: domains %s\n", url, store, name, strings.Join(cfg.Domains(), ", "))
	if err == nil && len(cfg.Rules()) > 0 {
		_, err = fmt.Fprintf(a.out, "\nTry it:\n\n  %s\n\n", curl(url, cfg.Rules()[0]))
	}
	return err
}

// reachable is an address as a client on the same machine writes it.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// curl is a command line that asks for a rule's subject.
func curl(url string, rule *config.Rule) string {
	entries := make([]config.Entry, len(rule.Path))
	for i, e := range rule.Path {
		if e.Value == "" {
			e.Value = "example"
			if e.Key == "remote_address" {
				e.Value = "192.0.2.7"
			}
		}
		entries[i] = e
	}
	body, _ := json.Marshal(map[string]any{"domain": rule.Domain, "entries": entries}) // texts only
	return fmt.Sprintf("curl -i -H 'Content-Type: application/json' -d '%s' %s/v1/allow", strings.ReplaceAll(string(body), "'", `'\''`), url)
}
