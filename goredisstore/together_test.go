package goredisstore_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

const trip = 150 * time.Millisecond

// An ocean has a server that is a trip away, and answers every command by an error.
type ocean struct {
	wreck bool // the server ends a connection in place of its answer to a script

	mu   sync.Mutex
	keys map[string]int // how often a script with each key arrived; guarded by mu
}

func (o *ocean) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		var command []string
		for r := bufio.NewReader(there); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			n, _ := strconv.Atoi(line[1 : len(line)-2])
			if line[0] == '*' {
				command = make([]string, 0, n)
				continue
			}
			arg := make([]byte, n+2)
			_, _ = io.ReadFull(r, arg)
			if command = append(command, string(arg[:n])); len(command) < cap(command) {
				continue
			}
			if command[0] == "evalsha" {
				o.mu.Lock()
				o.keys[command[3]]++
				o.mu.Unlock()
			}
			wreck := o.wreck && command[0] == "evalsha"
			time.AfterFunc(trip, func() {
				if wreck {
					_ = there.Close()
				}
				_, _ = io.WriteString(there, "-ERR far\r\n")
			})
		}
	}()
	return here, nil
}

// sail makes calls of different keys at once, over a pool of two connections. No script arrives twice.
func (o *ocean) sail(t *testing.T, opts redis.Options, calls int, call func(t *testing.T, l *sash.Limiter, key string)) {
	synctest.Test(t, func(t *testing.T) {
		o.keys = make(map[string]int)
		opts.Dialer, opts.PoolSize, opts.MaintNotificationsConfig = o.dial, 2, quiet
		client := redis.NewClient(&opts)
		l := newLimiter(t, goredisstore.New(client, nil), nil, sash.PerHour(10))
		var group sync.WaitGroup
		for i := range calls {
			group.Go(func() { call(t, l, fmt.Sprint(i)) })
			synctest.Wait()
		}
		group.Wait()
		time.Sleep(time.Minute)
		_ = client.Close()
		for key, n := range o.keys {
			if n > 1 {
				t.Errorf("the script of %s arrived %d times", key, n)
			}
		}
	})
}

// A thousand calls over two connections take a few trips: those for which there is no connection go together. They are not
// sent again when connections end.
func TestCallsBeyondThePoolGoTogether(t *testing.T) {
	for said, o := range map[string]*ocean{"ERR far": {}, "unavailable": {wreck: true}} {
		o.sail(t, redis.Options{}, 1000, func(t *testing.T, l *sash.Limiter, key string) {
			began := time.Now()
			_, err := l.Allow(t.Context(), key)
			if took := time.Since(began); err == nil || !strings.Contains(err.Error(), said) || took > 20*trip { // some to connect
				t.Errorf("%s: %v after %v", key, err, took)
			}
		})
		if len(o.keys) != 1000 {
			t.Errorf("%d calls arrived", len(o.keys))
		}
	}
}

// A caller that leaves before a connection is free is not charged. One that leaves later may be. Neither delays another.
func TestCallersLeaveWhenTheyWant(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		leaves := map[string]time.Duration{"2": 5*trip + trip/2, "5": trip / 3}
		var o ocean
		o.sail(t, redis.Options{ContextTimeoutEnabled: heeds}, 10, func(t *testing.T, l *sash.Limiter, key string) {
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(leaves[key], time.Minute))
			defer cancel()
			began := time.Now()
			_, err := l.Allow(ctx, key)
			took := time.Since(began)
			left := errors.Is(err, context.DeadlineExceeded) && took == leaves[key]
			if err == nil || left != (leaves[key] > 0) || !left && !strings.Contains(err.Error(), "ERR far") {
				t.Errorf("%s: %v after %v", key, err, took)
			}
		})
		if _, charged := o.keys["sash:log2:5"]; len(o.keys) != 9 || charged {
			t.Errorf("%d calls arrived: %v", len(o.keys), o.keys)
		}
	}
}

// On a cluster calls go together by server: one that is silent keeps its own callers waiting, and no others.
func TestASilentNodeDelaysNoCallOfAnother(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), PoolSize: 1, ReadTimeout: time.Minute, MaintNotificationsConfig: quiet,
	})
	defer client.Close()
	store := goredisstore.New(client, nil)
	l := newLimiter(t, store, nil, sash.PerHour(3))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var admitted atomic.Int64
	call := func(key string) {
		if res, err := l.Allow(ctx, key); err != nil {
			t.Error(err)
		} else if res.Allowed {
			admitted.Add(1)
		}
	}
	call("first")
	cluster.Primaries[0].Pause()
	groups := make([]sync.WaitGroup, len(cluster.Primaries))
	for i := range 400 {
		key := fmt.Sprint(i % 100)
		groups[cluster.Home(store.Slot(key, l.Policy()))].Go(func() { call(key) })
	}
	groups[1].Wait()
	groups[2].Wait()
	cluster.Primaries[0].Resume()
	groups[0].Wait()
	if n := admitted.Load(); n != 1+3*100 {
		t.Errorf("%d were admitted, want three of each key", n)
	}
}
