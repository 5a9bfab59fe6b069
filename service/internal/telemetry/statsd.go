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
	"example.com/sash/service/internal/throttle"
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
	failures throttle.Log
	tags     string // behind each line, as DogStatsD writes them
	suffix   string // the tags, as a part of each name
	sent     map[string]uint64
}

func newPusher(to *Statsd, registry *stats.Registry, log *slog.Logger) *pusher {
	p := &pusher{to: to, registry: registry, sent: make(map[string]uint64), failures: throttle.Log{To: log, Every: time.Minute}}
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

// run sends until the context ends, and then once more.
func (p *pusher) run(ctx context.Context) {
	ticker := time.NewTicker(p.to.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			ctx, cancel := lastExport(ctx)
			defer cancel()
			p.push(ctx)
			return
		case <-ticker.C:
			p.push(ctx)
		}
	}
}

// push sends once, and counts and logs a failure.
func (p *pusher) push(ctx context.Context) {
	if err := p.send(ctx); err != nil {
		p.registry.ExportFailed("statsd")
		p.failures.Log(slog.LevelWarn, "counters do not reach the statsd server", "server", p.to.Addr, "error", err)
	}
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
