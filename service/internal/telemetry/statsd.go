package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"

	"example.com/sash/service/internal/envoyenv"
	"example.com/sash/service/internal/stats"
)

// Bounds of what is sent to a statsd server.
const (
	statsdTime  = 2 * time.Second // for one round
	statsdBatch = 256             // counters that may wait in memory
	udpPayload  = 1432            // fits into a frame of Ethernet
	tcpPayload  = 8 << 10
)

// A pusher sends what counters grew by to a statsd server, again and again. A server that is not there changes
// nothing but the log; what grows meanwhile is sent when it is.
type pusher struct {
	to      *envoyenv.Statsd
	counted *stats.Registry
	log     *slog.Logger
	tags    []string
	suffix  string // tags as part of names
	sent    map[string]uint64
	failing bool
}

func newPusher(to *envoyenv.Statsd, counted *stats.Registry, log *slog.Logger) *pusher {
	p := &pusher{to: to, counted: counted, log: log, sent: make(map[string]uint64)}
	for _, tag := range to.Tags {
		key, value, _ := strings.Cut(tag, ":")
		value = strings.NewReplacer(".", "_", ":", "_", "|", "_").Replace(value)
		if to.Dog {
			p.tags = append(p.tags, key+":"+value)
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

// push sends once, and logs when that begins to fail and when it ends to. Over UDP a packet that is lost is seldom
// noticed, so that what is sent says nothing, and the first failure is the only one that is logged.
func (p *pusher) push(ctx context.Context) {
	err := p.send(ctx)
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
	payload := tcpPayload
	if p.to.Network == "udp" {
		payload = udpPayload
	}
	var once sync.Once
	var failed error
	client, err := statsd.NewWithWriter(conn,
		statsd.WithoutTelemetry(), statsd.WithoutClientSideAggregation(), statsd.WithoutOriginDetection(), statsd.WithTags(p.tags),
		statsd.WithMaxBytesPerPayload(payload), statsd.WithWorkersCount(1), statsd.WithBufferPoolSize(4), statsd.WithSenderQueueSize(statsdBatch),
		statsd.WithErrorHandler(func(err error) { once.Do(func() { failed = err }) }))
	if err != nil {
		return fmt.Errorf("the client of statsd: %w", err)
	}
	waiting := 0
	p.counted.Counters(func(name string, count uint64) {
		grown := count - p.sent[name]
		if grown == 0 {
			return
		}
		p.sent[name] = count
		_ = client.Count(name+p.suffix, int64(grown), nil, 1) // a name too long for a packet is left out
		if waiting++; waiting%statsdBatch == 0 {
			_ = client.Flush()
		}
	})
	_ = client.Close() // sends the rest; what it fails with went to the handler
	return failed
}
