package resp

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/servertest"
)

// Commands behind MULTI are charged at EXEC, which has their replies in one list, with the errors in their place.
func TestTransactionsAreAnsweredAtTheirEnd(t *testing.T) {
	p := open(t, everything)
	c, other := p.connect(t), p.connect(t)
	c.is("MULTI", "OK")
	c.is("CL.THROTTLE k 2 3 60", "QUEUED")
	c.is("CL.THROTTLE k many 3 60", "QUEUED")
	c.is("ECHO there", "QUEUED")
	c.is("CL.THROTTLE k 2 3 60", "QUEUED")
	other.is("CL.THROTTLE k 2 3 60", "[0 3 2 -1 60]") // nothing is charged yet
	c.is("EXEC", "[[0 3 1 -1 60] -Cell error: Couldn't parse as integer: many there [0 3 0 -1 60]]")
	c.is("MULTI", "OK")
	c.is("CL.THROTTLE other 2 3 60", "QUEUED")
	c.is("DISCARD", "OK")
	c.is("CL.THROTTLE other 2 3 60", "[0 3 2 -1 60]") // nothing was charged
	c.send(encode("MULTI") + encode("CL.THROTTLE", "third", "2", "3", "60") + encode("EXEC") + encode("ECHO", "behind") + encode("MULTI") + encode("QUIT"))
	c.gets("OK", "QUEUED", "[[0 3 2 -1 60]]", "behind", "OK", "OK")
}

// A command that cannot be queued has its error at once, and makes EXEC charge nothing.
func TestATransactionWithAMistakeIsDiscarded(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	long := strings.Repeat("x", 15<<10)
	for _, tt := range []struct {
		times         int
		command, want string
	}{
		{1, "GET key", "-ERR unknown command 'GET'"},
		{18, "ECHO " + long, "-ERR the commands behind MULTI are too long together"},
		{mostQueued/(2*argumentHas) + 1, "PING", "-ERR the commands behind MULTI are too long together"}, // each is more than its bytes in memory
	} {
		c.is("MULTI", "OK")
		c.is("CL.THROTTLE k 2 3 60", "QUEUED")
		got := ""
		for range tt.times {
			if got = c.do(tt.command); got != "QUEUED" {
				break
			}
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Fatalf("%.20s: %s, want %s", tt.command, got, tt.want)
		}
		c.do("CL.THROTTLE k 2 3 60")
		c.is("EXEC", "-EXECABORT Transaction discarded because of previous errors.")
	}
	c.is("CL.THROTTLE k 2 3 60", "[0 3 2 -1 60]")
}

// Queued commands count in the share of their address, until EXEC has answered them or the connection ends.
func TestQueuedCommandsAreOfTheShareOfTheirAddress(t *testing.T) {
	p, held := &port{}, conns.NewShare(100<<10)
	free := func() bool {
		ok := held.Take("anyone", 50<<10)
		if ok {
			held.Give("anyone", 50<<10)
		}
		return ok
	}
	inner := memstore.New(nil)
	var decisions atomic.Int64
	store := stands{driver.Passthrough{Store: inner}, func(ctx context.Context, b *driver.Batch) error {
		if decisions.Add(1); free() {
			t.Error("the commands are not held while they are answered")
		}
		return inner.Do(ctx, b)
	}}
	p.listen(t, Server{held: held}, New(servertest.Decider(t, store, rules), nil))
	queue := func() (c *peer) {
		c = p.connect(t)
		c.is("MULTI", "OK")
		for range 10 {
			c.is("ECHO "+strings.Repeat("x", 3<<10), "QUEUED") // no more than the first buffer
		}
		c.is("SASH.ALLOW shop ENTRY user 1", "QUEUED")
		return c
	}
	first := queue()
	second := p.connect(t)
	second.is("MULTI", "OK")
	for {
		second.send(encode("ECHO", strings.Repeat("x", 3<<10)))
		if _, err := readReply(second.in); err != nil {
			break
		}
	}
	first.is("SASH.ALLOW shop ENTRY user x", "QUEUED")
	first.begins("EXEC", "[xxx")
	if decisions.Load() == 0 {
		t.Error("nothing was decided")
	}
	servertest.Wait(t, "something stays held after EXEC", free)
	_ = queue().conn.Close()
	servertest.Wait(t, "something stays held", free)
}

// Whatever is sent between MULTI and EXEC or DISCARD, there is one reply to each command, and EXEC has as many as were queued.
func TestTransactionsByTheDefinition(t *testing.T) {
	p := open(t, everything)
	words := []string{"MULTI", "EXEC", "DISCARD", "WATCH k", "ECHO a", "ECHO", "NONE", "CL.THROTTLE k 9 9 9 0"}
	rapid.Check(t, func(rt *rapid.T) {
		c := p.connect(t)
		defer func() { _ = c.conn.Close() }()
		open, bad, queued := false, false, []string{}
		for _, command := range rapid.SliceOfN(rapid.SampledFrom(words), 1, 20).Draw(rt, "commands") {
			want := map[string]string{"ECHO a": "a", "ECHO": "-ERR wrong number", "NONE": "-ERR unknown", "CL.THROTTLE k 9 9 9 0": "[0 10 10 -1 0]"}[command]
			switch {
			case command == "MULTI" && open, strings.HasPrefix(command, "WATCH"), !open && (command == "EXEC" || command == "DISCARD"):
				want = "-ERR "
			case command == "MULTI":
				open, bad, queued, want = true, false, nil, "OK"
			case command == "DISCARD":
				open, want = false, "OK"
			case command == "EXEC":
				if open, want = false, "["+strings.Join(queued, " ")+"]"; bad {
					want = "-EXECABORT"
				}
			case open && want[0] == '-':
				bad = true
			case open:
				queued, want = append(queued, want), "QUEUED"
			}
			if got := c.do(command); !strings.HasPrefix(got, want) {
				rt.Fatalf("%s: %s, want %s", command, got, want)
			}
		}
	})
}

// The Go clients of services send their transactions and scripts as they do by default.
func TestClientsOfGoSendTransactionsAndScripts(t *testing.T) {
	p := open(t, everything)
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: p.addr, Protocol: protocol})
		key := fmt.Sprint("go-redis ", protocol)
		results := servertest.Must(client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			for range 3 {
				tx.Do(ctx, "CL.THROTTLE", key, 1, 2, 60)
			}
			return nil
		}))(t)
		for i, r := range results {
			if got := r.(*redis.Cmd).Val().([]any)[0]; got != map[bool]int64{true: 1}[i == 2] {
				t.Errorf("RESP%d, call %d: %v", protocol, i, got)
			}
		}
		script := redis.NewScript("return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], 2, 60)")
		got := servertest.Must(script.Run(ctx, client, []string{key}, 1).Int64Slice())(t) // EVALSHA, and EVAL the first time
		if got[0] != 1 || got[1] != 2 {
			t.Error(got)
		}
		if n, err := client.Del(ctx, key, "nothing").Result(); n != 1 || err != nil {
			t.Error(n, err)
		}
		servertest.Check(t, client.Close())
	}
	client := servertest.Must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.addr}}))(t) // with client side caching
	defer client.Close()
	for _, res := range client.DoMulti(ctx, client.B().Multi().Build(),
		client.B().Arbitrary("CL.THROTTLE").Keys("rueidis").Args("0", "1", "60").Build(), client.B().Exec().Build()) {
		servertest.Check(t, res.Error())
	}
	got := servertest.Must(rueidis.NewLuaScript("return redis.call('CL.THROTTLE',KEYS[1],ARGV[1],ARGV[2],ARGV[3])").
		Exec(ctx, client, []string{"rueidis"}, []string{"0", "1", "60"}).AsIntSlice())(t)
	if got[0] != 1 {
		t.Error(got)
	}
}
