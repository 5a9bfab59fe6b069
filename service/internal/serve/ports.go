package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/extproc"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/quota"
	"example.com/sash/service/internal/resp"
	"example.com/sash/service/internal/rls"
)

type ports map[string]net.Listener

func (p ports) close() {
	for _, l := range p {
		_ = l.Close()
	}
}

func (p ports) addr(port string) net.Addr {
	if l := p[port]; l != nil {
		return l.Addr()
	}
	return nil
}

// listen opens all ports or none. An error names the flag that set the address.
func (s *instance) listen(ctx context.Context) (ports, error) {
	p := make(ports)
	for _, port := range [][3]string{
		{"http", s.HTTP, "--addr"}, {"grpc", s.GRPC, "--grpc-addr"}, {"resp", s.RESP, "--resp-addr"}, {"admin", s.Admin, "--admin-addr"},
	} {
		if port[1] == "" && port[0] != "http" {
			continue
		}
		listener, err := conns.Listen(ctx, port[1])
		if err != nil {
			p.close()
			return nil, fmt.Errorf("cannot listen on %s: %w (choose another address with %s)", port[1], err, port[2])
		}
		p[port[0]] = listener
	}
	return p, nil
}

// runners returns the functions that run until their context ends: ports, store and exceptions. Health is down once draining is closed.
func (s *instance) runners(draining <-chan struct{}, ports ports) []func(context.Context) error {
	envoy := s.Protocol
	envoy.Timeout, envoy.Access, envoy.Stats, envoy.Log = s.patience(), s.gate, s.stats, s.Log
	protocol := rls.New(s.decider, &envoy)
	api := httpapi.New(s.decider, &httpapi.Options{
		Timeout: s.patience(), MaxWait: s.MaxWait, Health: s.health, Ready: s.ready(), Access: s.gate, JSON: protocol, Draining: draining,
		Tokens: s.tokens, Log: s.Log,
	})
	data, admin := s.connections()
	web := httpapi.Server{TLS: s.TLS, Connections: s.bounds("http", data), Log: s.Log}
	all := []func(context.Context) error{
		s.store.Run, s.exceptions.Run, s.gate.Watch,
		func(ctx context.Context) error {
			return web.Serve(ctx, ports["http"], s.recovering(s.telemetry.Handler(api)))
		},
	}
	if ports["grpc"] != nil {
		server := s.Server
		server.Ready, server.Draining, server.Connections, server.Log = s.ready(), draining, s.bounds("grpc", data), s.Log
		given := &quota.Service{Decider: s.decider, Access: s.gate, Timeout: s.patience(), Log: s.Log}
		tokens := func(to grpc.ServiceRegistrar, _ <-chan struct{}) { // admitted requests continue without it
			extproc.Register(to, s.decider, extproc.Options{
				Shadow: envoy.Shadow, Room: &protocol.Room, Access: s.gate, Tokens: s.tokens, Stats: s.stats, Log: s.Log,
			})
		}
		server.Lasting = []rls.Lasting{
			{Method: quota.Method, Streams: quota.MaxStreams, Register: given.Register}, {Method: extproc.Method, Register: tokens},
		}
		all = append(all, func(ctx context.Context) error { return server.Serve(ctx, ports["grpc"], protocol) })
	}
	if ports["resp"] != nil {
		server := resp.Server{TLS: s.TLSOfRESP, Connections: s.bounds("resp", data), Log: s.Log}
		handler := resp.New(s.decider, &resp.Options{
			Timeout: s.patience(), MaxWait: s.MaxWait, Access: s.gate, Tokens: s.tokens, Stats: s.stats, Log: s.Log,
		})
		all = append(all, func(ctx context.Context) error { return server.Serve(ctx, ports["resp"], handler) })
	}
	if ports["admin"] != nil {
		operators := httpapi.Server{TLS: s.AdminTLS, Connections: s.bounds("admin", admin), Log: s.Log}
		all = append(all, func(ctx context.Context) error {
			return operators.Serve(ctx, ports["admin"], s.recovering(s.admin(api.Health())))
		})
	}
	return all
}

func (s *instance) connections() (data, admin int) {
	want, ports := cmp.Or(s.MaxConnections, DefaultMaxConnections), 2
	if s.RESP != "" {
		ports++
	}
	if data, admin = conns.Shares(ports, want); data < want {
		s.Log.Warn("the process may have too few descriptors: raise their number (LimitNOFILE, ulimit -n)",
			"connections", data, "wanted", want)
	}
	return data, admin
}

func (s *instance) bounds(port string, most int) conns.Bounds {
	b := conns.Bounds{Max: most, Open: new(atomic.Int64), Log: s.Log}
	s.stats.Connections(port, b.Open, most)
	return b
}

// ready returns a further condition for the health checks of load balancers, or nil for none.
func (s *instance) ready() func(context.Context) error {
	if !s.ReadyNeedsConfig && !s.ReadyNeedsRedis {
		return nil
	}
	return func(ctx context.Context) error {
		switch {
		case s.ReadyNeedsConfig && len(s.decider.Config().Domains()) == 0:
			return errors.New("no domain is configured")
		case s.ReadyNeedsRedis:
			return s.store.ping(ctx)
		}
		return nil
	}
}

func (s *instance) health() degrade.Health {
	h := s.store.Health()
	if h.Status == "ok" && len(s.decider.Config().Domains()) == 0 {
		h.Status, h.Cause = "degraded", "configuration"
	}
	return h
}

func (s *instance) admin(health http.Handler) http.Handler {
	return admin.New(s.decider, admin.Options{
		Guard: s.guard, Stats: s.stats, Loading: s.loading, Exceptions: s.exceptions,
		Store: s.store.Report, Health: health, Log: s.Log,
	})
}

// opened describes who reaches each address. It warns if other machines need no credentials, or send tokens in plain text.
func (s *instance) opened(ports ports) (all []Opening) {
	may, tokens := cmp.Or(s.gate.Anonymous(), "nothing"), s.gate.HasTokens()
	var open []string
	for _, port := range []struct {
		name   string
		tls    *tls.Config
		tokens bool
		may    string
		flag   string
	}{
		{"http", s.TLS, tokens, may, "--tls-cert"},
		{"grpc", s.Server.TLS, tokens, may, "--tls-cert"},
		{"resp", s.TLSOfRESP, tokens, may, "--tls-cert"},
		{"admin", s.AdminTLS, len(s.AdminAccess.Tokens) > 0, "metrics and state, but no subjects and no changes", "--admin-tls-cert"},
	} {
		of := ports.addr(port.name)
		if of == nil {
			continue
		}
		from, addr := "this machine", of.String()
		if at, ok := of.(*net.TCPAddr); ok && !at.IP.IsLoopback() {
			from = "other machines"
			if port.tls == nil && port.tokens {
				s.Log.Warn("tokens cross the network in plain text: give "+port.flag+" and its key, or listen on loopback", "addr", addr)
			}
			if port.name != "admin" && may != "nothing" && !access.Verifies(port.tls) {
				open = append(open, addr)
			}
		}
		if access.Verifies(port.tls) {
			from += ", with a certificate"
		}
		all = append(all, Opening{port.name, addr, from + ": without credentials " + port.may})
	}
	if len(open) > 0 {
		s.Log.Warn("callers from other machines need no credentials: list clients in the file of --access, or listen on loopback",
			"addr", strings.Join(open, ", "), "they_may", may)
	}
	return all
}

func (s *instance) recovering(h http.Handler) http.Handler {
	return httpapi.Recover(h, s.Log, func() { s.stats.Service.Panics.Add(1) })
}
