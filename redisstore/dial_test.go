package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/sash/driver"
)

// A server owes an answer while it is being connected to, and from the first write after its last answer.
func TestASilentServerOwesAnAnswer(t *testing.T) {
	const addr = "198.51.100.1:6379"
	named := func() bool { return strings.Contains(Silent(time.Millisecond), addr+" has not answered for ") }
	near, far := net.Pipe()
	defer far.Close()
	connected := make(chan net.Conn, 1)
	go func() {
		conn, err := Dial(t.Context(), addr, func(context.Context) (net.Conn, error) { return near, nil })
		if err != nil {
			t.Error(err)
		}
		connected <- conn
	}()
	await := func(what string, want bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); named() != want; {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	await("it has not answered PING, and is not named", true)
	buffer := make([]byte, 100)
	if _, err := far.Read(buffer); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write([]byte("+PONG\r\n")); err != nil {
		t.Fatal(err)
	}
	conn := <-connected
	await("it owes nothing, and is named", false)
	send := func(command string) {
		go func() { _, _ = far.Read(buffer) }()
		if _, err := conn.Write([]byte(command)); err != nil {
			t.Fatal(err)
		}
	}
	send("*3\r\n$5\r\nblpop\r\n$4\r\njobs\r\n$1\r\n0\r\n")
	time.Sleep(5 * time.Millisecond) // as long as Redis likes
	if named() {
		t.Error("it works, has nothing for BLPOP, and is named")
	}
	send("*4\r\n$7\r\nevalsha\r\n")
	await("it owes an answer, and is not named", true)
	_ = conn.Close()
	if !named() {
		t.Error("its connection was closed, and it is forgotten at once")
	}
	await("it is not forgotten", false)
}

func TestAServerThatTakesNoConnectionIsNamed(t *testing.T) {
	const addr = "198.51.100.2:6379"
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, addr, func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(Silent(time.Millisecond), addr) {
		t.Errorf("%v; silent: %q", err, Silent(0))
	}
}

// The reason is remembered until a connection is made or a second has passed.
func TestARefusedConnectionIsRemembered(t *testing.T) {
	const addr = "198.51.100.3:6379"
	reason := errors.New("connection refused")
	refuse := func() {
		t.Helper()
		_, err := Dial(t.Context(), addr, func(context.Context) (net.Conn, error) { return nil, reason })
		if !errors.Is(err, reason) || !errors.Is(Refused(addr), reason) || Refused("198.51.100.4:6379") != nil {
			t.Errorf("%v; refused: %v", err, Refused(addr))
		}
		if said := Silent(0); strings.Contains(said, addr) {
			t.Errorf("a server that refuses is not silent: %q", said)
		}
	}
	refuse()
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_, _ = far.Read(make([]byte, 100))
		_, _ = far.Write([]byte("+PONG\r\n"))
	}()
	conn, err := Dial(t.Context(), addr, func(context.Context) (net.Conn, error) { return near, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := Refused(addr); err != nil {
		t.Errorf("it is connected, and refused: %v", err)
	}
	refuse()
	owing.mu.Lock()
	defer owing.mu.Unlock()
	now := clock()
	if owing.forget(now + remembered/2); owing.ended[addr].err == nil {
		t.Error("half a second later it is forgotten")
	}
	if owing.forget(now + 2*remembered); owing.ended[addr].err != nil {
		t.Error("two seconds later it is remembered")
	}
}

// Slots as a Redis server gives them for CLUSTER KEYSLOT.
func TestSlot(t *testing.T) {
	for key, want := range map[string]uint16{
		"":                     0,
		"foo":                  12182,
		"123456789":            12739, // the check value of CRC-16/XMODEM
		"{user1000}.following": 3443,
		"{user1000}.followers": 3443,
		"user1000":             3443,
		"foo{}{bar}":           8363, // an empty tag is none
		"foo{{bar}}zap":        4015, // the tag is "{bar"
		"{bar":                 4015,
		"foo{bar}{zap}":        5061, // the first tag counts
		"bar":                  5061,
	} {
		if got := slot(key); got != want {
			t.Errorf("%q is in slot %d, not %d", key, got, want)
		}
	}
}

// On a cluster one script reads the keys of a subject and its block. A cool-down is in the slot of the subject's log.
func TestBlocksAndCoolDownsAreInTheSlotOfTheirSubject(t *testing.T) {
	names := make(map[string]string)
	for _, prefix := range []string{"", "sash:", "{app}:", "a{b", "a}b", "{}", "odd{:", "odd}:", "{}:"} {
		for _, key := range []string{"user:42", "{org:1}:user", "a}b", "a{b", "{}", "x{y", "}{", "{a}{b}", "{{a}}", "{{}}"} {
			s := &Store{prefix: prefix}
			log, cool := s.Key(key, &driver.Policy{Algorithm: driver.SlidingLog}), s.coolDownKey(key)
			if slot(cool) != slot(log) || !strings.HasPrefix(cool, prefix+"cooldown:") || !strings.HasSuffix(cool, ":"+key) {
				t.Errorf("%q is in slot %d, and its cool-down %q in %d", log, slot(log), cool, slot(cool))
			}
			for _, p := range []*driver.Policy{{}, {Algorithm: driver.GCRA}} {
				own := s.Key(key, p)
				name := s.blockKey(own)
				if slot(own) != slot(name) || names[name] != "" && names[name] != own || own == name {
					t.Errorf("the block of %q is %q, in slot %d and not in %d", own, name, slot(name), slot(own))
				}
				names[name] = own
			}
		}
	}
}
