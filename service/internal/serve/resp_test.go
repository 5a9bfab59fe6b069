package serve

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
)

// What is decided over RESP counts as over HTTP, and is in the same metrics, also what is not decided.
func TestRESPSharesLimitsAndMetricsWithTheOtherPorts(t *testing.T) {
	at, stop := start(t, Options{RESP: "127.0.0.1:0", Admin: "127.0.0.1:0"})
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: at.RESP.String()})
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
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := web.Get("http://" + at.Admin.String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	for _, line := range []string{
		`sash_requests_total{outcome="allowed"} 10`, `sash_requests_total{outcome="refused"} 2`, `sash_requests_total{outcome="invalid"} 1`,
		`sash_port_requests_total{port="http"} 1`, `sash_port_requests_total{port="grpc"} 0`, `sash_port_requests_total{port="resp"} 11`,
		`sash_access_denied_total{reason="override"} 1`, `sash_connections{port="resp"} 1`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// While Redis is away rules are answered by on_unavailable, and limits that commands bring along are not decided.
func TestRESPWithoutItsRedis(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server := redistest.Start(t)
	at, stop := start(t, Options{
		RESP: "127.0.0.1:0", Redis: server.Addr(), Budget: 200 * time.Millisecond,
		Config: config.Source{Path: write("limits.yaml",
			"domain: d\ndescriptors:\n- {key: open, limits: [3/1h], on_unavailable: open}\n- {key: closed, limits: [3/1h]}\n")},
		AccessFile: write("access.yaml", "anonymous: {allow: [decide, override]}\n"),
	})
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: at.RESP.String()})
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
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
