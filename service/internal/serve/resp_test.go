package serve

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// What is decided over RESP counts as over HTTP, and is in the same metrics, also what is not decided.
func TestRESPSharesLimitsAndMetricsWithTheOtherPorts(t *testing.T) {
	at := running(t, Options{RESP: "127.0.0.1:0", Admin: "127.0.0.1:0"})
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: at.RESP.String()})
	t.Cleanup(func() { _ = client.Close() })
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
