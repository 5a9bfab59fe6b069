package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"example.com/sash/service/internal/stats"
)

// Bounds of one round to a statsd server.
const (
	statsdTime = 2 * time.Second
	udpPayload = 1432 // fits into an Ethernet frame
	tcpPayload = 8 << 10
)

// A pusher periodically sends the increments of the counters to a statsd server. A server that is away affects only the
// log; it receives the increments when it is back.
type pusher struct {
	to       *Statsd
	registry *stats.Registry
	log      *slog.Logger
	tags     string // behind each line, as DogStatsD writes them
	suffix   string // the tags, as a part of each name
	sent     map[string]uint64
	failing  bool
}

func newPusher(to *Statsd, registry *stats.Registry, log *slog.Logger) *pusher {
	p := &pusher{to: to, registry: registry, log: log, sent: make(map[string]uint64)}
	between := "|#"
	for _, tag := range to.Tags {
		key, value, _ := strings.Cut(tag, ":")
		value = strings.NewReplacer(".", "_", ":", "_", "|", "_").Replace(value)
		if to.Dog {
			p.tags, between = p.tags+between+key+":"+value, ","
		} else {
			p.suffix += ".__" + key + "=" + value
		}
	}
	return p
}

// run sends until the context ends.
func (p *pusher) run(ctx context.Context) {
	ticker := time.NewTicker(p.to.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.push(ctx)
		}
	}
}

// push sends once, and logs when sending begins to fail and when it works again. Over UDP success means little, because
// a lost packet is seldom noticed, so only the first failure is logged.
func (p *pusher) push(ctx context.Context) {
	err := p.send(ctx)
	if err != nil {
		p.registry.ExportFailed("statsd")
	}
	switch {
	case err != nil && !p.failing:
		p.log.Warn("counters do not reach the statsd server; the next failures are not logged", "server", p.to.Addr, "error", err)
	case err == nil && p.failing && p.to.Network == "udp":
		return
	case err == nil && p.failing:
		p.log.Info("counters reach the statsd server again", "server", p.to.Addr)
	}
	p.failing = err != nil
}

func (p *pusher) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statsdTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, p.to.Network, p.to.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	batch := bytes.NewBuffer(make([]byte, 0, tcpPayload))
	payload := tcpPayload
	if p.to.Network == "udp" {
		payload = udpPayload
	}
	before := p.sent
	p.sent = make(map[string]uint64, len(before)) // without the counters that are gone
	p.registry.Counters(func(name string, count uint64) {
		p.sent[name] = count
		grown := count - before[name]
		if count < before[name] { // its rule was gone for a while
			grown = count
		}
		line := fmt.Sprintf("%s%s:%d|c%s\n", name, p.suffix, grown, p.tags)
		if grown == 0 || len(line) > payload { // a name too long for a packet is left out
			return
		}
		if batch.Len()+len(line) > payload && err == nil {
			_, err = batch.WriteTo(conn)
		}
		batch.WriteString(line)
	})
	if err == nil {
		_, err = batch.WriteTo(conn)
	}
	return err
}
