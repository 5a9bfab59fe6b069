package redistest

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Slots is the number of slots of a cluster.
const Slots = 16384

// A Cluster is a Redis Cluster on loopback ports. Its primaries own equal shares of the slots, in order.
type Cluster struct {
	Primaries []*Server
	// Replicas lists the replicas of the first primary, then those of the second, and so on.
	Replicas []*Server
}

// ClusterOptions are the options of [StartCluster]. The zero value is three primaries without replicas.
type ClusterOptions struct {
	// Primaries is the number of primaries. Zero is 3.
	Primaries int
	// Replicas is the number of replicas of each primary.
	Replicas int
	// NodeTimeout is the time without an answer after which the cluster considers a node down. Zero is 1s.
	NodeTimeout time.Duration
	// Args, if not nil, returns more arguments for a node. The primaries have the lowest numbers.
	Args func(node int) []string
}

// StartCluster starts a cluster for one test, and stops it when the test ends. It returns when every node
// knows all slots and every replica is synchronized.
func StartCluster(t testing.TB, opts ClusterOptions) *Cluster {
	t.Helper()
	c := &Cluster{}
	if err := c.form(opts, func(args ...string) (*Server, error) { return Start(t, args...), nil }); err != nil {
		t.Fatal(fmt.Errorf("internal/redistest: the cluster did not form: %w", err))
	}
	return c
}

// RunCluster is [StartCluster] without a test. The caller stops the cluster with [Cluster.Stop].
func RunCluster(opts ClusterOptions) (*Cluster, error) {
	c := &Cluster{}
	if err := c.form(opts, Run); err != nil {
		c.Stop()
		return nil, fmt.Errorf("internal/redistest: the cluster did not form: %w", err)
	}
	return c, nil
}

// Stop stops every node. On a stopped cluster it does nothing.
func (c *Cluster) Stop() {
	for _, s := range c.Nodes() {
		s.Stop()
	}
}

// form starts the nodes and makes a cluster of them.
func (c *Cluster) form(opts ClusterOptions, start func(args ...string) (*Server, error)) error {
	opts.Primaries = cmp.Or(opts.Primaries, 3)
	opts.NodeTimeout = cmp.Or(opts.NodeTimeout, time.Second)
	for node := range opts.Primaries * (1 + opts.Replicas) {
		args := []string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(opts.NodeTimeout.Milliseconds(), 10),
		}
		if opts.Args != nil {
			args = append(args, opts.Args(node)...)
		}
		s, err := start(args...)
		if err != nil {
			return err
		}
		if node < opts.Primaries {
			c.Primaries = append(c.Primaries, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	if err := c.meet(); err != nil {
		return err
	}
	if err := until("every node knows the others and all slots", c.ready); err != nil {
		return err
	}
	for i, s := range c.Replicas {
		id, err := c.Primaries[i/opts.Replicas].id()
		if err != nil {
			return err
		}
		if _, err := s.Do("CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
	}
	return until("the replicas are synchronized, and every node knows them", func() (bool, error) {
		for i, s := range c.Replicas {
			if known, err := c.replicated(s, c.Primaries[i/opts.Replicas]); !known {
				return false, err
			}
		}
		return c.ready()
	})
}

// meet gives the primaries their slots, and introduces the nodes to each other.
func (c *Cluster) meet() error {
	for i, s := range c.Primaries {
		slots := []string{"CLUSTER", "ADDSLOTS"} // Redis 6.2 has no ADDSLOTSRANGE
		for slot := i * Slots / len(c.Primaries); slot < (i+1)*Slots/len(c.Primaries); slot++ {
			slots = append(slots, strconv.Itoa(slot))
		}
		if _, err := s.Do(slots...); err != nil {
			return err
		}
		if _, err := s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	nodes := c.Nodes()
	for i, s := range nodes {
		for _, other := range nodes[i+1:] { // gossip alone is slow
			host, port, err := net.SplitHostPort(other.Addr())
			if err != nil {
				return err
			}
			if _, err := s.Do("CLUSTER", "MEET", host, port); err != nil {
				return err
			}
		}
	}
	return nil
}

// replicated reports whether a replica is synchronized, and every node knows its primary.
func (c *Cluster) replicated(replica, primary *Server) (bool, error) {
	if linked, err := replica.linked(); !linked {
		return false, err
	}
	id, err := replica.id()
	if err != nil {
		return false, err
	}
	of, err := primary.id()
	if err != nil {
		return false, err
	}
	for _, node := range c.Nodes() {
		list, err := node.Do("CLUSTER", "NODES")
		if err != nil || !replicates(list, id, of) {
			return false, err
		}
	}
	return true, nil
}

// replicates reports whether, by a node's list of nodes, one node replicates another.
func replicates(list any, id, of string) bool {
	text, _ := list.(string)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == id {
			return f[3] == of
		}
	}
	return false
}

// Nodes returns all nodes, primaries first.
func (c *Cluster) Nodes() []*Server {
	return append(append([]*Server(nil), c.Primaries...), c.Replicas...)
}

// Addrs returns the addresses of all nodes, primaries first.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes()) }

// ID returns the name of a node in its cluster.
func (s *Server) ID(t testing.TB) string {
	t.Helper()
	id, err := s.id()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *Server) id() (string, error) {
	id, err := s.Do("CLUSTER", "MYID")
	name, _ := id.(string)
	return name, err
}

// Slot returns the slot of a Redis key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	return int(c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", key).(int64))
}

// Home returns the index of the primary that owned a slot at the start. It panics if there is no such
// slot.
func (c *Cluster) Home(slot int) int {
	for i := range c.Primaries {
		if slot < (i+1)*Slots/len(c.Primaries) {
			return i
		}
	}
	panic("internal/redistest: there is no slot " + strconv.Itoa(slot))
}

// MoveSlot moves a slot and its keys from one primary to another, as redis-cli does: key by key, while the
// old owner redirects clients for keys that have moved.
func (c *Cluster) MoveSlot(t testing.TB, slot int, from, to *Server) {
	t.Helper()
	n := strconv.Itoa(slot)
	to.Must(t, "CLUSTER", "SETSLOT", n, "IMPORTING", from.ID(t))
	from.Must(t, "CLUSTER", "SETSLOT", n, "MIGRATING", to.ID(t))
	host, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for {
		keys, _ := from.Must(t, "CLUSTER", "GETKEYSINSLOT", n, "10").([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			from.Must(t, "MIGRATE", host, port, key.(string), "0", "5000")
		}
	}
	for _, s := range []*Server{to, from} { // the new owner first, so that one of them owns it at any time
		s.Must(t, "CLUSTER", "SETSLOT", n, "NODE", to.ID(t))
	}
}

// ready reports whether every node knows all others and all slots.
func (c *Cluster) ready() (bool, error) {
	nodes := c.Nodes()
	for _, s := range nodes {
		reply, err := s.Do("CLUSTER", "INFO")
		if err != nil {
			return false, err
		}
		info, _ := reply.(string)
		if reply, err = s.Do("CLUSTER", "NODES"); err != nil {
			return false, err
		}
		list, _ := reply.(string)
		if !strings.Contains(info, "cluster_state:ok") ||
			!strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(Slots)+"\r\n") ||
			!strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(nodes))+"\r\n") ||
			strings.Contains(list, "handshake") {
			return false, nil
		}
	}
	return true, nil
}
