package conns

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a listener with one connection, and its client.
func open(t *testing.T) (*Listener, *Conn, net.Conn) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	client := connect(t, l)
	return l, accept(t, l), client
}

func accept(t *testing.T, l *Listener) *Conn {
	t.Helper()
	c := servertest.Must(l.Accept())(t)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*Conn)
}

func listen(t *testing.T, addr string) *Listener {
	t.Helper()
	inner := servertest.Must(Listen(t.Context(), addr))(t)
	l := New(inner, Bounds{})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func connect(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	client := servertest.Must(net.Dial(l.Addr().Network(), l.Addr().String()))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_ = servertest.Must(io.WriteString(conn, text))(t)
}

// A request arrives between the decision to close its connection and the close.
func TestABytePreventsTheEndOfAnIdleConnection(t *testing.T) {
	_, server, client := open(t)
	deadline := time.Now().Add(time.Hour)
	servertest.Check(t, server.SetReadDeadline(deadline))
	write(t, client, "request")
	server.retire(time.Now().Add(time.Second))
	got := make([]byte, 10)
	if n, err := server.Read(got); err != nil || string(got[:n]) != "request" {
		t.Fatalf("the server reads %q, %v", got[:n], err)
	}
	write(t, client, "body")
	if n, err := server.Read(got); err != nil || string(got[:n]) != "body" {
		t.Errorf("then it reads %q, %v: the deadline of the server no longer holds", got[:n], err)
	}
}

// Over a pipe in a bubble, whose clock moves only when all wait.
func TestOnlySilentConnectionsEnd(t *testing.T) {
	for what, tt := range map[string]struct {
		use    func(*Conn)
		silent time.Duration // nothing was sent or received until now plus this
		ends   bool
	}{
		"silent":                          {func(*Conn) {}, 1, true},
		"used since":                      {func(*Conn) {}, 0, false},
		"busy":                            {func(c *Conn) { c.Begin() }, 1, false},
		"no longer busy":                  {func(c *Conn) { c.Begin(); c.End() }, 1, true},
		"given a deadline at that moment": {func(c *Conn) { _ = c.SetDeadline(time.Now().Add(time.Hour)) }, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer func() { _, _ = here.Close(), there.Close() }()
			server := &Conn{Conn: here, last: time.Now()}
			tt.use(server)
			server.retire(time.Now().Add(tt.silent))
			_ = server.SetReadDeadline(time.Now().Add(time.Minute))
			_ = server.SetDeadline(time.Now().Add(time.Minute))
			began := time.Now()
			_, err := server.Read(make([]byte, 1))
			want := time.Minute
			if tt.ends {
				want = lookTime
			}
			if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != want {
				t.Errorf("%s: it ends with %v after %v, want %v", what, err, took, want)
			}
		})
	}
}

// A listener that stops hands out the connections in its queue.
func TestStopAcceptsTheQueue(t *testing.T) {
	for what, addr := range map[string]string{
		"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0", "a Unix socket": "unix://" + filepath.Join(t.TempDir(), "socket"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := listen(t, addr)
			var clients []net.Conn
			for range 20 {
				c := connect(t, l)
				write(t, c, "x")
				clients = append(clients, c)
			}
			l.Stop()
			l.acceptWithin(0) // the deadline passes before the first look at the queue
			for range clients {
				server, err := l.Accept()
				if err != nil {
					t.Fatalf("a connection in the queue: %v", err)
				}
				write(t, server, "y")
				_ = server.Close()
			}
			if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("at the end %v, %v", c, err)
			}
			for _, c := range clients {
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Errorf("a client in the queue: %v", err)
				}
			}
			if _, err := net.Dial(l.Addr().Network(), l.Addr().String()); err == nil {
				t.Error("it still listens")
			}
		})
	}
}

func TestFinishWaitsForBusyConnections(t *testing.T) {
	l, server, _ := open(t)
	server.Begin()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := server.Read(make([]byte, 1)); err != nil {
				_ = server.Close()
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Finish(ctx, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a busy connection: %v", err)
	}
	server.End()
	servertest.Check(t, l.Finish(t.Context(), time.Millisecond))
	<-ended
}

// full returns a listener at its bound, with the connections that it has open, and their clients.
func full(t *testing.T, n int) (l *Listener, all []*Conn, clients []net.Conn) {
	t.Helper()
	l = listen(t, "127.0.0.1:0")
	l.bounds.Max = n
	for range n {
		clients = append(clients, connect(t, l))
		all = append(all, accept(t, l))
	}
	return l, all, clients
}

// An address that keeps all connections busy, and asks for more all the time, does not keep another one out, which gets up to
// half of the places. The places of those with fewer are their own, also where they are silent.
func TestOneAddressKeepsNobodyOut(t *testing.T) {
	const places = 8
	l, all, _ := full(t, places)
	for _, c := range all {
		c.Begin()
	}
	ctx, stop := context.WithCancel(t.Context())
	var dialing sync.WaitGroup
	defer dialing.Wait()
	defer stop()
	for range 4 {
		dialing.Go(func() {
			for ctx.Err() == nil {
				if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String()); err == nil {
					_ = c.SetReadDeadline(time.Now().Add(time.Second))
					_, _ = c.Read(make([]byte, 1))
					_ = c.Close()
				}
			}
		})
	}
	other, party := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}, access.Party("127.0.0.2:1")
	defer time.AfterFunc(20*time.Second, func() { _ = l.Close() }).Stop() // otherwise it would wait for ever
	for range places / 2 {
		client, err := other.DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			t.Fatal("this test needs 127.0.0.2, as Linux has it: ", err)
		}
		t.Cleanup(func() { _ = client.Close() })
		c, err := l.Accept() // the other address's, since those of the first are closed
		if err != nil || c.(*Conn).party != party {
			t.Fatalf("accepted %v, %v", c.RemoteAddr(), err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	go func() { _, _ = l.Accept() }() // the first address goes on
	time.Sleep(500 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	held := 0
	for _, c := range l.open {
		if c.party == party {
			held++
		}
	}
	if held != places/2 || len(l.open) != places {
		t.Errorf("the other address has %d of %d", held, len(l.open))
	}
}

func TestSharesOfDescriptors(t *testing.T) {
	for _, tt := range []struct {
		descriptors uint64
		ports       int
		data, admin int
	}{
		{256, 2, 80, 32}, {1024, 2, 320, 128}, {1024, 3, 213, 128}, {20_000, 2, 4096, 128}, {1 << 63, 3, 4096, 128},
	} {
		if data, admin := shares(tt.descriptors, tt.ports, 4096); data != tt.data || admin != tt.admin {
			t.Errorf("of %d: %d for each data port and %d for the admin port, want %d and %d",
				tt.descriptors, data, admin, tt.data, tt.admin)
		}
	}
}

func TestConnectionsAreKnownByTheirAddressAndCounted(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "socket")} {
		var open atomic.Int64
		l := listen(t, addr)
		l.bounds.Open = &open
		var all []*Conn
		for range 3 {
			connect(t, l)
			c := accept(t, l)
			all = append(all, c)
			if open.Load() != int64(len(all)) || l.Of(c.RemoteAddr()) != c {
				t.Errorf("%s: %d are open after %d, or the last is not known", addr, open.Load(), len(all))
			}
		}
		for i, c := range all {
			_, _ = c.Close(), c.Close()
			if open.Load() != int64(2-i) || l.Of(c.RemoteAddr()) != nil {
				t.Errorf("%s: %d are open, want %d, or one that is closed is known", addr, open.Load(), 2-i)
			}
		}
	}
}

func TestANewConnectionTakesThePlaceOfTheLongestSilent(t *testing.T) {
	l, all, clients := full(t, 3)
	all[0].Begin() // and silent for longer
	write(t, clients[1], "x")
	_, _ = all[1].Read(make([]byte, 1))
	connect(t, l)
	accept(t, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if open := l.open[all[2].RemoteAddr()]; open != nil || len(l.open) != 3 {
		t.Errorf("%d connections are open; the longest silent is one of them: %v", len(l.open), open != nil)
	}
}

// If all connections are in use, one from the address with the most is closed at once, and nobody waits behind it.
func TestAnAddressWithMostTakesNoPlaceInUse(t *testing.T) {
	l, all, _ := full(t, 2)
	for _, c := range all {
		c.Begin()
	}
	client := connect(t, l)
	l.Stop()
	if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted %v, %v", c, err)
	}
	_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client without a place: %v", err)
	}
}

func TestStopLeavesThePathToANewListener(t *testing.T) {
	addr := "unix://" + filepath.Join(t.TempDir(), "socket")
	first := listen(t, addr)
	first.Stop()
	second := listen(t, addr)
	if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	connect(t, second)
}

// A socket that a killed process left gives its path to the next one.
func TestASocketThatWasLeft(t *testing.T) {
	addr := "unix://" + filepath.Join(t.TempDir(), "socket")
	killed := servertest.Must(Listen(t.Context(), addr))(t)
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = killed.Close()
	connect(t, listen(t, addr))
}

func TestAServerEndsItsHalfAndReadsOn(t *testing.T) {
	_, server, client := open(t)
	servertest.Check(t, server.CloseWrite())
	if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
		t.Errorf("the client reads %q, %v", rest, err)
	}
	write(t, client, "last words")
	_ = servertest.Must(io.ReadFull(server, make([]byte, 10)))(t)
}

// Clients that take what they can hold no more together than there is, one alone holds a half, and after a few of them one
// that holds nothing still finds something. When all is given back nothing is left.
func TestAShareIsThereForWhoeverComesNext(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		most := 100 + rng.Int64N(1000)
		s, held, all := NewShare(most), make([]int64, 1+rng.IntN(4)), int64(0)
		for range 5000 {
			i, n := rng.IntN(len(held)), 1+rng.Int64N(3)
			client := string(rune('a' + i))
			if rng.IntN(10) == 0 {
				n = rng.Int64N(held[i] + 1)
				s.Give(client, n)
				n = -n
			} else if !s.Take(client, n) {
				continue
			}
			held[i] += n
			all += n
			if all > most || len(held) == 1 && held[0] > most/2 {
				t.Fatalf("seed %d: of %d, %v are held", seed, most, held)
			}
			if !s.Take("new", 1) {
				t.Fatalf("seed %d: of %d, %v are held, and nothing is left", seed, most, held)
			}
			s.Give("new", 1)
		}
		for i, n := range held {
			s.Give(string(rune('a'+i)), n)
		}
		if s.all != 0 || len(s.held) != 0 {
			t.Fatalf("seed %d: %d are left, of %v", seed, s.all, s.held)
		}
	}
}
