package serve

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
)

func commander(t *testing.T, at Listening) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: at.RESP.String()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// What is decided over RESP counts as over HTTP, and is in the same metrics, also what is not decided.
func TestRESPSharesLimitsAndMetricsWithTheOtherPorts(t *testing.T) {
	at := running(t, Options{RESP: "127.0.0.1:0", Admin: "127.0.0.1:0"})
	ctx, client := context.Background(), commander(t, at)
	ask := func() map[any]any {
		t.Helper()
		reply, err := client.Do(ctx, "SASH.ALLOW", "demo", "ENTRY", "remote_address", "192.0.2.7", "COST", 1).Result()
		if err != nil {
			t.Fatal(err)
		}
		return reply.(map[any]any)
	}
	if reply := ask(); reply["allowed"] != int64(1) {
		t.Errorf("at first: %v", reply)
	}
	if status := allow(t, at); status != http.StatusTooManyRequests { // which wants all ten
		t.Errorf("HTTP answers %d", status)
	}
	for range 9 {
		ask()
	}
	if reply := ask(); reply["allowed"] != int64(0) {
		t.Errorf("at last: %v", reply)
	}
	if err := client.Do(ctx, "SASH.ALLOW", "demo", "ENTRY").Err(); err == nil {
		t.Error("a wrong command is answered")
	}
	if err := client.Do(ctx, "CL.THROTTLE", "key", 15, 30, 60).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") {
		t.Errorf("limits of a caller's own: %v", err)
	}
	has(t, get(t, at, "/metrics"),
		`sash_requests_total{outcome="allowed"} 10`, `sash_requests_total{outcome="refused"} 2`, `sash_requests_total{outcome="invalid"} 1`,
		`sash_port_requests_total{port="http"} 1`, `sash_port_requests_total{port="grpc"} 0`, `sash_port_requests_total{port="resp"} 11`,
		`sash_access_denied_total{reason="override"} 1`, `sash_connections{port="resp"} 1`)
}

// While Redis is away rules are answered by on_unavailable, and limits that commands bring along are not decided.
func TestRESPWithoutItsRedis(t *testing.T) {
	server := redistest.Start(t)
	at := running(t, Options{
		RESP: "127.0.0.1:0", Redis: server.Addr(), Budget: 200 * time.Millisecond,
		Config:     config.Source{Path: file(t, "domain: d\ndescriptors:\n- {key: open, limits: [3/1h], on_unavailable: open}\n- {key: closed, limits: [3/1h]}\n")},
		AccessFile: file(t, "anonymous: {allow: [decide, override]}\n"),
	})
	ctx, client := context.Background(), commander(t, at)
	ask := func(args ...any) string {
		reply, err := client.Do(ctx, args...).Result()
		if err != nil {
			return err.Error()
		}
		if fields, ok := reply.(map[any]any); ok {
			return fields["source"].(string)
		}
		return "list"
	}
	commands := [][]any{{"SASH.ALLOW", "d", "ENTRY", "open", "x"}, {"SASH.ALLOW", "d", "ENTRY", "closed", "x"}, {"CL.THROTTLE", "k", 2, 3, 60}}
	for i, want := range []string{"store", "store", "list"} {
		if got := ask(commands[i]...); got != want {
			t.Errorf("%v: %s, want %s", commands[i], got, want)
		}
	}
	server.Stop()
	for i, want := range []string{"policy", "SASHSTORE ", "SASHSTORE "} {
		if got := ask(commands[i]...); !strings.HasPrefix(got, want) {
			t.Errorf("without Redis, %v: %s, want %s", commands[i], got, want)
		}
	}
}
