package regionbench

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A way is the network between a region and the home: each byte arrives a delay after it was sent, in either direction,
// however many are under way. Connecting takes two delays more. While the way is cut, nothing arrives; what was sent
// meanwhile arrives when it is whole again, as the system sends it again on a real network.
type way struct {
	delay time.Duration
	ln    net.Listener

	mu     sync.Mutex
	to     string        // guarded by mu: the address of the home
	open   chan struct{} // guarded by mu: closed while the way is whole
	conns  map[net.Conn]struct{}
	closed bool // guarded by mu
	group  sync.WaitGroup
}

// newWay returns a way to an address. The caller closes it.
func newWay(to string, delay time.Duration) (*way, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &way{delay: delay, ln: ln, to: to, open: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	close(w.open)
	w.group.Go(w.accept)
	return w, nil
}

// Addr is where the home is reached by this way.
func (w *way) Addr() string { return w.ln.Addr().String() }

// cut stops everything on the way.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

// heal ends a cut.
func (w *way) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.open)
}

// redirect leads the way to another address, and ends its connections.
func (w *way) redirect(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	w.end()
}

// Close ends all connections.
func (w *way) Close() {
	w.ln.Close()
	w.mu.Lock()
	w.closed = true
	w.end()
	w.mu.Unlock()
	w.group.Wait()
}

// end closes all connections. The caller holds mu.
func (w *way) end() {
	for c := range w.conns {
		c.Close()
	}
}

// whole returns a channel that is closed when nothing is cut.
func (w *way) whole() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

// keep reports whether a connection may go on, and sees to its end.
func (w *way) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.conns[c] = struct{}{}
	}
	return !w.closed
}

func (w *way) drop(c net.Conn) {
	c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

func (w *way) accept() {
	for {
		near, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.group.Go(func() { w.join(near) })
	}
}

// join connects to the home and passes bytes until either end closes.
func (w *way) join(near net.Conn) {
	defer w.drop(near)
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer w.drop(far)
	if !w.keep(near) || !w.keep(far) {
		return
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	var both sync.WaitGroup
	connected := time.Now().Add(2 * w.delay)
	for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			w.pass(ctx, ends[0], ends[1], connected)
			end()
			near.Close()
			far.Close()
		})
	}
	both.Wait()
}

// A parcel is bytes under way.
type parcel struct {
	bytes   []byte
	arrives time.Time
}

// underWay is how many parcels a direction of a connection holds before it reads no more.
const underWay = 4096

// pass takes what one end sends to the other, a delay later.
func (w *way) pass(ctx context.Context, from, to net.Conn, connected time.Time) {
	parcels := make(chan parcel, underWay)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		defer close(parcels)
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				sent := time.Now()
				if sent.Before(connected) {
					sent = connected
				}
				select {
				case parcels <- parcel{append([]byte(nil), buffer[:n]...), sent.Add(w.delay)}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer from.Close() // so that the reader ends
	for p := range parcels {
		if w.carry(ctx, to, p) != nil {
			return
		}
	}
}

var errEnded = errors.New("regionbench: the connection has ended")

// carry delivers a parcel when it arrives.
func (w *way) carry(ctx context.Context, to net.Conn, p parcel) error {
	if rest := time.Until(p.arrives); rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return errEnded
		}
	}
	select {
	case <-w.whole():
	case <-ctx.Done():
		return errEnded
	}
	_, err := to.Write(p.bytes)
	return err
}
