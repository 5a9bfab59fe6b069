package doctor

import (
	"context"
	crand "crypto/rand"
	"fmt"

	"github.com/redis/go-redis/v9"

	"example.com/sash/service/internal/redisclient"
)

// everywhere returns a name for every primary, by the primary's address, such that the primary holds its Redis key.
func (v *visit) everywhere(ctx context.Context, name string, key func(name string) string) (map[string]string, error) {
	cluster, ok := v.client.(*redis.ClusterClient)
	if !ok {
		return map[string]string{"": name}, nil
	}
	slots, err := slotsOf(ctx, cluster)
	if err != nil {
		return nil, err
	}
	primaries := make(map[string]bool)
	for _, s := range slots {
		if len(s.Nodes) > 0 {
			primaries[s.Nodes[0].Addr] = true
		}
	}
	names := make(map[string]string)
	for i := 0; len(names) < len(primaries) && i < 10_000; i++ {
		n := fmt.Sprint(name, "-", i)
		c, err := cluster.MasterForKey(ctx, key(n))
		if err != nil {
			return nil, err
		}
		if addr := c.Options().Addr; names[addr] == "" {
			names[addr] = n
		}
	}
	return names, nil
}

// beats counts an instance on every primary, like instances that share a limit while Redis is away. It reports whether
// that works. The heartbeat expires by itself.
func (v *visit) beats(ctx context.Context) bool {
	groups, err := v.everywhere(ctx, "doctor-"+crand.Text(), func(group string) string {
		return v.prefix + "instances:" + group
	})
	if err != nil {
		v.note("scripts", Fail, "heartbeats: "+err.Error(), "see the error; without the nodes of the cluster there are no decisions")
		return false
	}
	store, worked := v.store(), true
	for _, address := range sorted(groups) {
		n, err := store.Instances(ctx, groups[address], "doctor", window)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d instances were counted instead of one", n)
		}
		if err != nil {
			worked = false
			v.add("scripts", node{address: address}, Fail, "heartbeats: "+err.Error(), remedy(err))
		}
	}
	return worked
}

// waits checks whether calls can wait for replicas (redisstore.Options.Replicas).
func (v *visit) waits(ctx context.Context) {
	missing := false
	_ = redisclient.Primaries(ctx, v.client, func(ctx context.Context, c *redis.Client) error {
		if err := c.Do(ctx, "WAIT", "0", "1").Err(); forbidden(err) {
			missing = true
			v.add("wait", node{address: address(c)}, Warn, "the user may not run WAIT: a call that is to wait for replicas is charged and then returns an error",
				"give the user the permissions of the ACL line below, if calls are to wait for replicas")
		}
		return nil
	})
	if !missing {
		v.note("wait", OK, "WAIT is permitted, for calls that wait for replicas", "")
	}
}
