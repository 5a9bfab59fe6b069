package conns

import (
	"log/slog"
	"math"
	"net"
	"sync/atomic"
	"time"
)

// Bounds of the connections that a Listener has open.
type Bounds struct {
	// Max is the most connections. At the bound a new one takes the place of one that is silent and waits for no
	// answer. If there is none it waits, as do those behind it in the system's queue. Zero is no bound.
	Max int
	// Open is how many connections are open. The listener changes it. Nil is not counted.
	Open *atomic.Int64
	// Log gets a warning at the bound, at most once a minute. Nil is slog.Default.
	Log *slog.Logger
}

const (
	silence   = 250 * time.Millisecond // after which a connection may make room; a client that has connected sends sooner
	sample    = 16                     // silent connections, of which the one that was silent for longest ends
	roomEvery = 100 * time.Millisecond // for a connection to become silent, and for one that was closed to end
)

// admit returns the connection when there is room for it.
func (l *Listener) admit(conn net.Conn) (net.Conn, error) {
	c := &Conn{Conn: conn, from: l, last: time.Now()}
	for {
		victim, ok := l.enter(c)
		if ok {
			return c, nil
		}
		l.full.Log(slog.LevelWarn,
			"all connections of the port are in use: a new one takes the place of one that is silent, or waits",
			"addr", l.Addr().String(), "connections", l.bounds.Max)
		if victim != nil {
			victim.retire(time.Now().Add(-silence))
		}
		timer := time.NewTimer(roomEvery)
		select {
		case <-l.freed:
		case <-timer.C:
			if victim != nil {
				victim.cut()
			}
		case <-l.closed:
			timer.Stop()
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		timer.Stop()
	}
}

// enter takes a place for a connection. If there is none it returns a connection that can end, or nil.
func (l *Listener) enter(c *Conn) (victim *Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bounds.Max == 0 || len(l.open) < l.bounds.Max {
		l.open[c.RemoteAddr()] = c
		l.count(1)
		return nil, true
	}
	began, seen := time.Now().Add(-silence), 0
	var longest time.Time
	for _, c := range l.open { // in random order
		last, idle := c.idle()
		if !idle || last.After(began) {
			continue
		}
		if victim == nil || last.Before(longest) {
			victim, longest = c, last
		}
		if seen++; seen == sample {
			break
		}
	}
	return victim, false
}

// Shares divides the descriptors of the process: up to a quarter, and 256, are kept for Redis and for files; up to an
// eighth, and 128, are for the connections of the admin port; and each of the data ports has an equal part of the rest,
// up to most.
func Shares(ports, most int) (data, admin int) { return shares(descriptors(), ports, most) }

func shares(descriptors uint64, ports, most int) (data, admin int) {
	limit := int(min(descriptors, math.MaxInt32))
	kept, admin := min(256, limit/4), min(128, limit/8)
	return min(most, (limit-kept-admin)/ports), admin
}
