package serve

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// An operator sees how many connections each port has, and a warning at the bound.
func TestOpenConnectionsAreInTheMetricsAndFullPortsInTheLog(t *testing.T) {
	log := &servertest.Log{}
	at := running(t, Options{
		GRPC: "127.0.0.1:0", Admin: "127.0.0.1:0", MaxConnections: 8, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	var open []net.Conn
	fill := func(addr net.Addr, n int) {
		for range n {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
	}
	fill(at.HTTP, 3)
	fill(at.GRPC, 2)
	all := []string{`sash_connections{port="http"} 3`, `sash_connections{port="grpc"} 2`, `sash_connections{port="admin"} 1`, `sash_max_connections{port="grpc"} 8`}
	servertest.Wait(t, fmt.Sprintf("the metrics do not have %q", all), func() bool {
		text := get(t, at, "/metrics")
		return !slices.ContainsFunc(all, func(line string) bool { return !strings.Contains(text, line+"\n") })
	})
	fill(at.HTTP, 6)
	servertest.Wait(t, "no warning", func() bool {
		return strings.Contains(log.String(), "all connections of the port are in use") && strings.Contains(log.String(), "addr="+at.HTTP.String())
	})
	for _, c := range open {
		_ = c.Close()
	}
	servertest.Wait(t, "connections that are closed still count", func() bool { return strings.Contains(get(t, at, "/metrics"), `sash_connections{port="http"} 0`) })
}
