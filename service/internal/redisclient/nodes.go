package redisclient

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/rueidis"
)

// Node returns a client for one server, such as a replica, with the user and the parameters of c.
func (c *Client) Node(addr string) *Client {
	t := *c.target
	t.form, t.network, t.addrs = single, "tcp", []string{addr}
	return clientOf(&t)
}

// Sentinels returns a client for each Sentinel and the name of the primary that they watch; none for other forms of URLs.
func (c *Client) Sentinels() (clients []*Client, master string) {
	if c.target.form != sentinel {
		return nil, ""
	}
	for _, addr := range c.target.addrs {
		t := *c.target
		t.form, t.network, t.addrs, t.db = single, "tcp", []string{addr}, 0
		t.user, t.password = t.sentinelUser, t.sentinelPassword
		clients = append(clients, clientOf(&t))
	}
	return clients, c.target.master
}

// Database reports whether the client uses a database other than 0.
func (c *Client) Database() bool { return c.target.db != 0 }

// A Slots is a range of slots of a Cluster, and the addresses of the servers that hold it, the primary first.
type Slots struct {
	First, Last int
	Nodes       []string
}

// Slots returns the slots of a Cluster. Redis 6.2 has no CLUSTER SHARDS.
func (c *Client) Slots(ctx context.Context) (all []Slots, err error) {
	reply, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.ClusterSlots().Build() })
	if err != nil {
		return nil, err
	}
	ranges, err := reply.ToArray()
	for _, one := range ranges {
		fields, _ := one.ToArray()
		if len(fields) < 2 {
			return nil, fmt.Errorf("unexpected answer to CLUSTER SLOTS: %v", one.String())
		}
		first, _ := fields[0].AsInt64()
		last, _ := fields[1].AsInt64()
		s := Slots{First: int(first), Last: int(last)}
		for _, node := range fields[2:] {
			parts, _ := node.ToArray()
			if len(parts) < 2 {
				continue
			}
			host, _ := parts[0].ToString()
			if host == "" { // a node that does not know its own address
				host, _, _ = net.SplitHostPort(c.target.addrs[0])
			}
			port, _ := parts[1].AsInt64()
			s.Nodes = append(s.Nodes, net.JoinHostPort(host, strconv.FormatInt(port, 10)))
		}
		all = append(all, s)
	}
	return all, err
}

// Primaries calls f with the address and a client of each primary, one after the other, until one returns an error. Behind
// Sentinels the address is "the primary".
func (c *Client) Primaries(ctx context.Context, f func(addr string, primary *Client) error) error {
	switch c.target.form {
	case sentinel:
		return f("the primary", c)
	case single:
		return f(c.target.addrs[0], c)
	}
	slots, err := c.Slots(ctx)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, s := range slots {
		if len(s.Nodes) == 0 || seen[s.Nodes[0]] {
			continue
		}
		seen[s.Nodes[0]] = true
		node := c.Node(s.Nodes[0])
		err := f(s.Nodes[0], node)
		node.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
