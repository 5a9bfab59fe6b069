package adapters

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/redisstore"
)

// fuzzReply answers scripts and WAIT with replies of every kind and any bytes. The adapter returns a valid
// result or an error, and does not panic.
func fuzzReply(f *testing.F, open Open) {
	server := startLiar(f)
	plain := open(f, server.addr(), Options{Timeout: 10 * time.Second})
	f.Cleanup(plain.Close)
	waiting := open(f, server.addr(), Options{Timeout: 10 * time.Second, Store: &redisstore.Options{Replicas: 1}})
	f.Cleanup(waiting.Close)
	admits := make([]byte, 48)
	for kind := range byte(kinds) {
		f.Add(kind, admits, kind, []byte("1"))
		f.Add(kind, []byte("NOSCRIPT"), kind, []byte("x"))
		f.Add(byte(0), admits, kind, []byte("\x7f"))
	}
	f.Fuzz(func(t *testing.T, kind byte, script []byte, waitKind byte, wait []byte) {
		server.say(reply(kind, script), reply(waitKind, wait))
		for _, store := range []*redisstore.Store{plain.Store, waiting.Store} {
			l, err := sash.New(store, nil, sash.PerHour(10))
			if err != nil {
				t.Fatal(err)
			}
			res, err := l.Allow(patient(t), "k")
			switch {
			case err != nil:
				if !errors.Is(err, sash.ErrUnavailable) || res.Allowed {
					t.Errorf("%+v, %v", res, err)
				}
			case res.Remaining < 0 || res.RetryAfter < 0 || len(res.Limits()) != 1:
				t.Errorf("%+v", res)
			}
		}
	})
}

// kinds is the number of kinds of replies.
const kinds = 10

// reply is a reply of RESP3.
func reply(kind byte, text []byte) string {
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(text))
	bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	switch kind % kinds {
	case 0:
		return bulk
	case 1:
		return "+" + line + "\r\n"
	case 2:
		return "-ERR " + line + "\r\n"
	case 3:
		return "-NOSCRIPT " + line + "\r\n"
	case 4:
		return fmt.Sprintf(":%d\r\n", int64(len(text))-1)
	case 5:
		return "_\r\n"
	case 6:
		return "*2\r\n" + bulk + ":1\r\n"
	case 7:
		return "%1\r\n" + bulk + bulk
	case 8:
		return ",1.5\r\n"
	default:
		return "#t\r\n"
	}
}

// A liar is a server that does nothing and sends the replies of the test.
type liar struct {
	ln net.Listener

	mu           sync.Mutex
	script, wait string // guarded by mu
}

func startLiar(t testing.TB) *liar {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s := &liar{ln: ln}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *liar) addr() string { return s.ln.Addr().String() }

func (s *liar) say(script, wait string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.wait = script, wait
}

func (s *liar) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		name, _, err := readCommand(r)
		if err != nil {
			return
		}
		if _, err := conn.Write([]byte(s.answer(name))); err != nil {
			return
		}
	}
}

func (s *liar) answer(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name {
	case "EVALSHA", "EVAL":
		return s.script
	case "WAIT":
		return s.wait
	case "HELLO":
		return "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
	case "CLUSTER":
		return "-ERR This instance has cluster support disabled\r\n"
	case "PING":
		return "+PONG\r\n"
	}
	return "+OK\r\n"
}
