package serve

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

// One client's pipelines, of more commands than Redis is asked at once, take from another client none of its answers, and
// nothing from the store: no failure mode answers. It is about this process. So a round counts in which Redis itself, which a
// busy machine may not run, has answered each PING in time.
func TestACrowdTakesNothingFromOthers(t *testing.T) {
	server := redistest.Start(t)
	rules := file(t, "domain: shop\ndescriptors:\n  - {key: user, limits: [1000/1m]}\n")
	clients := file(t, fmt.Sprintf("clients:\n  - {name: greedy, tokens: [%x], allow: [decide]}\n  - {name: modest, tokens: [%x], allow: [decide]}\n",
		sha256.Sum256([]byte("greedy")), sha256.Sum256([]byte("modest"))))
	opts := Options{Redis: "redis://" + server.Addr(), HTTP: "127.0.0.1:0", RESP: "127.0.0.1:0", AccessFile: clients, Budget: 100 * time.Millisecond}
	opts.Config.Path = rules
	at := running(t, opts)
	for range 5 {
		undecided, silent := crowd(t, at, server.Addr())
		if undecided == 0 {
			return
		}
		if silent < opts.Budget/4 {
			t.Fatalf("%d answers without Redis, which was silent for %v at most", undecided, silent)
		}
	}
	t.Skip("the machine does not run Redis for as long as the budget")
}

// crowd returns how many calls of a modest client Redis did not decide, and for how long it was silent.
func crowd(t *testing.T, at Listening, redis string) (undecided int, silent time.Duration) {
	var over atomic.Bool
	var group sync.WaitGroup
	defer group.Wait()
	defer over.Store(true)
	connect := func(addr string) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return c, bufio.NewReader(c)
	}
	var pipeline strings.Builder
	for i := range 64 {
		fmt.Fprintf(&pipeline, "*5\r\n$10\r\nSASH.ALLOW\r\n$4\r\nshop\r\n$5\r\nENTRY\r\n$4\r\nuser\r\n$2\r\n%02d\r\n", i)
	}
	for range 64 {
		c, r := connect(at.RESP.String())
		group.Go(func() {
			defer func() { _ = c.Close() }()
			_, _ = c.Write([]byte("*2\r\n$4\r\nAUTH\r\n$6\r\ngreedy\r\n"))
			for !over.Load() {
				if _, err := c.Write([]byte(pipeline.String())); err != nil {
					return
				}
				_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				for _, err := r.ReadSlice('\n'); err == nil && !over.Load(); {
					_, err = r.ReadSlice('\n')
				}
			}
		})
	}
	c, r := connect(redis)
	var longest atomic.Int64
	group.Go(func() {
		defer func() { _ = c.Close() }()
		for !over.Load() {
			began := time.Now()
			_, _ = c.Write([]byte("PING\r\n"))
			_, _ = r.ReadSlice('\n')
			longest.Store(max(longest.Load(), int64(time.Since(began))))
			time.Sleep(time.Millisecond)
		}
	})
	for i := range 50 {
		body := fmt.Sprintf(`{"domain":"shop","entries":[{"key":"user","value":"modest %d"}]}`, i)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at.HTTP.String()+"/v1/allow", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer modest")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			undecided++
		}
		time.Sleep(20 * time.Millisecond)
	}
	http.DefaultClient.CloseIdleConnections()
	return undecided, time.Duration(longest.Load())
}
