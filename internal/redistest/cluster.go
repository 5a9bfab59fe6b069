package redistest

import (
	"cmp"
	"fmt"
	"net"
	"slices"
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
	opts.Primaries = cmp.Or(opts.Primaries, 3)
	opts.NodeTimeout = cmp.Or(opts.NodeTimeout, time.Second)
	for node := range opts.Primaries * (1 + opts.Replicas) {
		args := []string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(opts.NodeTimeout.Milliseconds(), 10),
		}
		if opts.Args != nil {
			args = append(args, opts.Args(node)...)
		}
		if s := Start(t, args...); node < opts.Primaries {
			c.Primaries = append(c.Primaries, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	c.meet(t)
	await(t, "every node of the cluster knows the others and all slots", func() bool { return c.ready(t, 0) })
	for i, s := range c.Replicas {
		s.Must(t, "CLUSTER", "REPLICATE", c.Primaries[i/opts.Replicas].ID(t))
	}
	await(t, "the replicas of the cluster are synchronized, and every node knows them", func() bool {
		alone := func(s *Server) bool { return s.Info(t, "replication", "master_link_status") != "up" }
		return c.ready(t, len(c.Replicas)) && !slices.ContainsFunc(c.Replicas, alone)
	})
	return c
}

// meet gives the primaries their slots, and introduces the nodes to each other.
func (c *Cluster) meet(t testing.TB) {
	t.Helper()
	for i, s := range c.Primaries {
		slots := []string{"CLUSTER", "ADDSLOTS"} // Redis 6.2 has no ADDSLOTSRANGE
		for slot := i * Slots / len(c.Primaries); slot < (i+1)*Slots/len(c.Primaries); slot++ {
			slots = append(slots, strconv.Itoa(slot))
		}
		s.Must(t, slots...)
		s.Must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	nodes := c.Nodes()
	for i, s := range nodes {
		for _, other := range nodes[i+1:] { // gossip alone is slow
			s.Must(t, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port))
		}
	}
}

// Nodes returns all nodes, primaries first.
func (c *Cluster) Nodes() []*Server { return slices.Concat(c.Primaries, c.Replicas) }

// Addrs returns the addresses of all nodes, primaries first.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes()) }

// ID returns the name of a node in its cluster.
func (s *Server) ID(t testing.TB) string {
	t.Helper()
	id, _ := s.Must(t, "CLUSTER", "MYID").(string)
	return id
}

// Slot returns the slot of a Redis key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	return int(c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", key).(int64))
}

// Home returns the index of the primary that owned a slot at the start. It panics if there is no such slot.
func (c *Cluster) Home(slot int) int {
	for i := range c.Primaries {
		if slot < (i+1)*Slots/len(c.Primaries) {
			return i
		}
	}
	panic("internal/redistest: there is no slot " + strconv.Itoa(slot))
}

// ready reports whether every node knows all others, so many replicas among them, and all slots.
func (c *Cluster) ready(t testing.TB, replicas int) bool {
	t.Helper()
	nodes := c.Nodes()
	for _, s := range nodes {
		info, _ := s.Must(t, "CLUSTER", "INFO").(string)
		list, _ := s.Must(t, "CLUSTER", "NODES").(string)
		if fieldOf(info, "cluster_state") != "ok" || fieldOf(info, "cluster_slots_ok") != strconv.Itoa(Slots) ||
			fieldOf(info, "cluster_known_nodes") != strconv.Itoa(len(nodes)) || strings.Contains(list, "handshake") ||
			strings.Count(list, "slave ") != replicas {
			return false
		}
	}
	return true
}

// Sentinels watch a primary and its replicas. If the primary is down, they promote a replica.
type Sentinels struct {
	// Name is the name of the primary, by which clients ask for its address.
	Name string
	// Servers are the sentinels.
	Servers []*Server
}

// StartSentinels starts three sentinels, which know each other and the replicas when it returns. A primary is down when two of them
// have had no answer for the given time.
func StartSentinels(t testing.TB, primary *Server, replicas int, down time.Duration) *Sentinels {
	t.Helper()
	const name, count, quorum = "sash", 3, 2
	s := &Sentinels{Name: name}
	for range count {
		one := &Server{dir: t.TempDir(), args: []string{"--sentinel"}}
		one.config = func() string {
			return fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
sentinel monitor %s 127.0.0.1 %d %d
sentinel down-after-milliseconds %[3]s %[6]d
sentinel failover-timeout %[3]s 5000
`, one.port, one.dir, name, primary.port, quorum, down.Milliseconds())
		}
		one.begin(t)
		// By default sentinels publish every two seconds and read INFO every ten. Servers older than 7
		// cannot change that, and return an error.
		_, _ = one.Do("SENTINEL", "DEBUG", "INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "200")
		s.Servers = append(s.Servers, one)
	}
	await(t, "the sentinels know each other and the replicas", func() bool {
		for _, one := range s.Servers {
			state, _ := one.Must(t, "SENTINEL", "MASTER", name).([]any) // names, each before its value
			others, slaves := slices.Index(state, any("num-other-sentinels")), slices.Index(state, any("num-slaves"))
			if state[others+1] != strconv.Itoa(count-1) || state[slaves+1] != strconv.Itoa(replicas) {
				return false
			}
			if _, err := one.Do("SENTINEL", "CKQUORUM", name); err != nil {
				return false
			}
		}
		return true
	})
	return s
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() []string { return addrs(s.Servers) }

// Primary returns the address of the primary that the first sentinel names.
func (s *Sentinels) Primary(t testing.TB) string {
	t.Helper()
	at, ok := s.Servers[0].Must(t, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name).([]any)
	if !ok || len(at) != 2 {
		t.Fatalf("internal/redistest: the sentinel knows no primary: %v", at)
	}
	return net.JoinHostPort(at[0].(string), at[1].(string))
}

func addrs(servers []*Server) []string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}
