package servertest

import (
	"fmt"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// A Cluster has three primaries, and a replica of the first.
type Cluster struct {
	Primaries [3]*redistest.Server
	Replica   *redistest.Server
}

// URL is the URL of the cluster.
func (c *Cluster) URL() string {
	var addrs []string
	for _, s := range c.Primaries {
		addrs = append(addrs, s.Addr())
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// StartCluster starts a cluster and waits until all of it is joined. A primary that does not answer for a
// second is failed over.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	node := func() *redistest.Server {
		return redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
	}
	bounds := []string{"0", "5460", "5461", "10922", "10923", "16383"}
	for i := range c.Primaries {
		c.Primaries[i] = node()
		Do(t, c.Primaries[i], "CLUSTER", "ADDSLOTSRANGE", bounds[2*i], bounds[2*i+1])
		Do(t, c.Primaries[i], "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
	}
	c.Replica = node()
	all := append(c.Primaries[:], c.Replica)
	for _, s := range all[1:] {
		Do(t, all[0], "CLUSTER", "MEET", "127.0.0.1", port(t, s.Addr()))
	}
	first := Do(t, all[0], "CLUSTER", "MYID").(string)
	Wait(t, "the nodes do not meet", func() bool {
		for _, s := range all {
			nodes := Do(t, s, "CLUSTER", "NODES").(string)
			if strings.Count(nodes, "connected") != len(all) || strings.Contains(nodes, "disconnected") || strings.Contains(nodes, "handshake") {
				return false
			}
		}
		return true
	})
	Do(t, c.Replica, "CLUSTER", "REPLICATE", first)
	Wait(t, "the cluster does not come together", func() bool {
		for _, s := range all {
			if !strings.Contains(Do(t, s, "CLUSTER", "INFO").(string), "cluster_state:ok") ||
				!strings.Contains(Do(t, s, "CLUSTER", "NODES").(string), "slave "+first) {
				return false
			}
		}
		return strings.Contains(Do(t, c.Replica, "INFO", "replication").(string), "master_link_status:up")
	})
	return c
}
