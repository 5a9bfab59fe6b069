package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/service/internal/redisclient"
)

func (v *visit) topology(ctx context.Context, nodes []node) {
	if v.many {
		v.cluster(ctx)
		v.coverage(nodes)
	}
	if sentinels, master := v.client.Sentinels(); len(sentinels) > 0 {
		v.watched = true
		v.sentinels(ctx, sentinels, master)
		if _, err := v.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Role().Build() }); forbidden(err) {
			v.add("sentinel", "", Fail, "the user may not run ROLE on the primary", "give the user +role: the client checks that a server is the primary before it uses it")
		}
	}
}

func (v *visit) cluster(ctx context.Context) {
	slots, err := v.client.Slots(ctx)
	if err != nil {
		v.add("cluster", "", Fail, "CLUSTER SLOTS: "+err.Error(), "give the user +cluster|slots: without it the client cannot find the nodes")
		return
	}
	if _, err := v.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.ClusterShards().Build() }); forbidden(err) {
		v.add("cluster", "", Warn, "the user may not run CLUSTER SHARDS", "give the user +cluster|shards: since version 8 the client finds the nodes with it")
	}
	covered, primaries, alone := 0, make(map[string]bool), make(map[string]bool)
	for _, s := range slots {
		covered += s.Last - s.First + 1
		if len(s.Nodes) > 0 {
			primaries[s.Nodes[0]] = true
			if len(s.Nodes) == 1 {
				alone[s.Nodes[0]] = true
			}
		}
	}
	seen := fmt.Sprintf("%d primaries hold %d of 16384 slots", len(primaries), covered)
	switch {
	case covered < 16384:
		v.add("cluster", "", Fail, seen, "keys in the other slots have no server: see redis-cli --cluster check")
	case len(alone) > 0:
		v.add("cluster", "", Warn, fmt.Sprintf("%s; %d of them have no replica", seen, len(alone)),
			"add a replica to each: without one there are no decisions on its keys while it is down")
	case len(primaries) < 3:
		v.add("cluster", "", Warn, seen, "a failover needs a majority of primaries: use at least three")
	default:
		v.add("cluster", "", OK, seen+", each with a replica", "")
	}
}

// coverage checks whether nodes that work refuse their keys while another one is down.
func (v *visit) coverage(nodes []node) {
	for _, n := range nodes {
		switch setting := n.config["cluster-require-full-coverage"]; setting {
		case "no":
			v.add("coverage", n.address, OK, "it decides its keys while another primary is down", "")
		case "":
			v.add("coverage", n.address, Unchecked, "the user may not read cluster-require-full-coverage", asAdministrator)
		default:
			v.add("coverage", n.address, Warn, "cluster-require-full-coverage is "+setting+": from when a primary counts as down until its replica is promoted, "+
				"this node refuses its keys too", "CONFIG SET cluster-require-full-coverage no on every node, and in its redis.conf")
		}
	}
}

func (v *visit) sentinels(ctx context.Context, sentinels []*redisclient.Client, master string) {
	var names []string // of the primary
	var quorum error
	var answered, others int
	var after time.Duration
	for _, s := range sentinels {
		defer s.Close()
		ask := func(what string) (rueidis.RedisMessage, error) {
			return s.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Arbitrary("SENTINEL", what, master).Build() })
		}
		reply, err := ask("GET-MASTER-ADDR-BY-NAME")
		addr, wrong := reply.AsStrSlice()
		if err != nil || wrong != nil || len(addr) != 2 {
			continue
		}
		answered++
		names = append(names, net.JoinHostPort(addr[0], addr[1]))
		if _, err := ask("CKQUORUM"); err != nil {
			quorum = err
		}
		if reply, err := ask("MASTER"); err == nil {
			fields, _ := reply.AsStrMap()
			n, _ := strconv.Atoi(fields["num-other-sentinels"])
			ms, _ := strconv.Atoi(fields["down-after-milliseconds"])
			others, after = max(others, n), max(after, time.Duration(ms)*time.Millisecond)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	seen := fmt.Sprintf("%d of %d Sentinels answer and name %s as %s; they know %d others; a primary that is down is noticed after %v",
		answered, len(sentinels), strings.Join(names, " and "), master, others, after)
	level, do := Warn, ""
	switch {
	case len(names) != 1:
		level, do = Fail, "they must agree: see SENTINEL MASTER "+master+" on each"
	case quorum != nil && !forbidden(quorum):
		level, seen, do = Fail, seen+"; "+quorum.Error(), "bring the other Sentinels back: a failover is not possible now"
	case answered < len(sentinels):
		do = "bring back those that do not answer, or remove them from the URL"
	case others < 2:
		do = "use at least three Sentinels: two cannot outvote one that is wrong or down"
	case after > 10*time.Second:
		do = "until then there are no decisions: SENTINEL SET " + master + " down-after-milliseconds 5000"
	default:
		level = OK
	}
	v.add("sentinel", "", level, seen, do)
}

const (
	clockSamples = 5
	// A difference below this is harmless: a failover shifts the charges by as much.
	smallOffset = 200 * time.Millisecond
	largeOffset = 10 * time.Second
)

func (v *visit) clocks(ctx context.Context, nodes []node) {
	var read []clock
	compare := func(address string, c *redisclient.Client) error {
		ahead, err := offset(ctx, c)
		if err != nil {
			v.findings = append(v.findings, Finding{Check: "clock", Node: address, Level: Unchecked, Seen: "TIME failed: " + err.Error()})
			return nil //nolint:nilerr // it is a finding
		}
		read = append(read, clock{address, ahead})
		return nil
	}
	_ = v.client.Primaries(ctx, compare)
	for _, n := range nodes {
		for _, r := range n.replicas() {
			c := v.client.Node(r.address)
			_ = compare(r.address, c)
			c.Close()
		}
	}
	v.findings = append(v.findings, judgeClocks(read)...)
}

type clock struct {
	address string
	ahead   time.Duration
}

func judgeClocks(read []clock) (out []Finding) {
	var least, most time.Duration
	for i, c := range read {
		if i == 0 {
			least, most = c.ahead, c.ahead
		}
		least, most = min(least, c.ahead), max(most, c.ahead)
		f := Finding{Check: "clock", Node: c.address, Level: OK, Seen: fmt.Sprintf("%v ahead of this machine's", c.ahead.Round(time.Millisecond))}
		if c.ahead < 0 {
			f.Seen = fmt.Sprintf("%v behind this machine's", -c.ahead.Round(time.Millisecond))
		}
		if c.ahead.Abs() >= smallOffset {
			f.Level, f.Do = Warn, "synchronize both clocks with NTP; decisions use the server's clock, but calendar limits and log times use this machine's"
		}
		out = append(out, f)
	}
	if apart := most - least; apart >= smallOffset {
		level := Warn
		if apart >= largeOffset {
			level = Fail
		}
		seen := fmt.Sprintf("the servers' clocks are %v apart: after a failover to one that is ahead, units are admitted that much early; "+
			"after one to a clock that is behind, they are held that much longer", apart.Round(time.Millisecond))
		out = append(out, Finding{Check: "clock", Level: level, Seen: seen, Do: "synchronize the servers' clocks with NTP"})
	}
	return out
}

// offset returns a server's clock minus this machine's, from the fastest of several samples.
func offset(ctx context.Context, c *redisclient.Client) (time.Duration, error) {
	var best, ahead time.Duration
	for i := range clockSamples {
		before := time.Now()
		at, err := c.Time(ctx)
		if err != nil {
			return 0, err
		}
		if took := time.Since(before); i == 0 || took < best {
			best, ahead = took, at.Sub(before.Add(took/2))
		}
	}
	return ahead, nil
}
