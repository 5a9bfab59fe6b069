package doctor

import (
	"context"
	crand "crypto/rand"
	"fmt"

	"github.com/redis/rueidis"

	"example.com/sash/driver"
	"example.com/sash/service/internal/redisclient"
)

// everywhere returns a name for every primary, by the primary's address, such that the primary holds the slot of the name.
// Names have a hash tag, so that all keys with one are in its slot.
func (v *visit) everywhere(ctx context.Context, name string, slot func(name string) int) (map[string]string, error) {
	if !v.many {
		return map[string]string{"": name}, nil
	}
	slots, err := v.client.Slots(ctx)
	if err != nil {
		return nil, err
	}
	primaries := make(map[int]string) // by slot
	distinct := make(map[string]bool)
	for _, s := range slots {
		for slot := s.First; slot <= s.Last && len(s.Nodes) > 0; slot++ {
			primaries[slot], distinct[s.Nodes[0]] = s.Nodes[0], true
		}
	}
	names := make(map[string]string)
	for i := 0; len(names) < len(distinct) && i < 10_000; i++ {
		n := fmt.Sprintf("%s-{%d}", name, i)
		if addr := primaries[slot(n)]; addr != "" && names[addr] == "" {
			names[addr] = n
		}
	}
	return names, nil
}

// beats counts an instance on every primary, like instances that share a limit while Redis is away. It reports whether
// that works. The heartbeat expires by itself.
func (v *visit) beats(ctx context.Context) bool {
	store, worked := v.store(), true
	groups, err := v.everywhere(ctx, "doctor-"+crand.Text(), func(group string) int { return store.Slot(group, &driver.Policy{}) })
	if err != nil {
		v.note("scripts", Fail, "heartbeats: "+err.Error(), "see the error; without the nodes of the cluster there are no decisions")
		return false
	}
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
	_ = v.client.Primaries(ctx, func(address string, c *redisclient.Client) error {
		_, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Wait().Numreplicas(0).Timeout(1).Build() })
		if forbidden(err) {
			missing = true
			v.add("wait", node{address: address}, Warn, "the user may not run WAIT: a call that is to wait for replicas is charged and then returns an error",
				"give the user the permissions of the ACL line below, if calls are to wait for replicas")
		}
		return nil
	})
	if !missing {
		v.note("wait", OK, "WAIT is permitted, for calls that wait for replicas", "")
	}
}
