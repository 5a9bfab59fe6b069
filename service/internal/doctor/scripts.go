package doctor

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/redisstore"
)

const (
	latencyCalls = 200
	// longest bounds the measurement on a server that is far away.
	longest = 5 * time.Second
)

// A trial is a limiter on keys that are removed.
type trial struct {
	store   *redisstore.Store
	limiter *sash.Limiter
	keys    map[string]string // by the address of the primary that holds them
}

// window is that of trials. What is not removed expires: the marks of settlements after two of them, that of a
// call with an ID after sash.RepeatTime, and a heart-beat after a second.
const window = 5 * time.Second

// try makes a limiter with one key on every primary.
func (v *visit) try(ctx context.Context, algorithm sash.Algorithm, units int64) (*trial, error) {
	store := goredisstore.New(v.client, nil)
	opts := &sash.Options{Algorithm: algorithm, Prefix: "doctor-" + crand.Text()}
	if algorithm == sash.SlidingBuckets {
		opts.Resolution = time.Second
	}
	limiter, err := sash.New(store, opts, sash.Every(units, window))
	if err != nil {
		return nil, err
	}
	t := &trial{store: store, limiter: limiter, keys: make(map[string]string)}
	cluster, ok := v.client.(*redis.ClusterClient)
	if !ok {
		t.keys[""] = "key"
		return t, nil
	}
	primaries := 0
	slots, err := slotsOf(ctx, cluster)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, s := range slots {
		if len(s.Nodes) > 0 && !seen[s.Nodes[0].Addr] {
			seen[s.Nodes[0].Addr] = true
			primaries++
		}
	}
	policy, err := sash.NewPolicy(opts, limiter.Limits()...)
	if err != nil {
		return nil, err
	}
	for i := 0; len(t.keys) < primaries && i < 10_000; i++ {
		key := fmt.Sprint("key-", i)
		c, err := cluster.MasterForKey(ctx, store.Key(opts.Prefix+":"+key, policy))
		if err != nil {
			return nil, err
		}
		if addr := c.Options().Addr; t.keys[addr] == "" {
			t.keys[addr] = key
		}
	}
	return t, nil
}

// clean removes the keys, also after an interrupt.
func (t *trial) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, key := range t.keys {
		_ = t.limiter.Reset(ctx, key)
	}
}

// scripts runs every script on every primary. What no script can do is told once.
func (v *visit) scripts(ctx context.Context) {
	worked, algorithms := 0, sash.Algorithms()
	for _, algorithm := range algorithms {
		t, err := v.try(ctx, algorithm, 5)
		if err != nil {
			v.note("scripts", Fail, fmt.Sprintf("%s: %v", algorithm, err), "see the error; without the nodes of the cluster nothing can be decided")
			return
		}
		var failed error
		for _, address := range sorted(t.keys) {
			if err := t.round(ctx, t.keys[address], algorithm.Exact()); err != nil {
				failed = err
				v.add("scripts", node{address: address}, Fail, fmt.Sprintf("%s: %v", algorithm, err), remedy(err))
			}
		}
		t.clean(ctx)
		if failed == nil {
			worked++
		} else if !lacksRights(failed) {
			return
		}
	}
	if worked == len(algorithms) {
		v.note("scripts", OK, fmt.Sprintf("all %d algorithms decide, settle and reset; calls with an ID and heart-beats work", worked), "")
	}
}

// round asks for all that a limiter does of one key. Those that are not exact may admit the second call.
func (t *trial) round(ctx context.Context, key string, exact bool) error {
	for _, step := range []struct {
		cost    int64
		allowed bool
	}{{3, true}, {3, false}, {1, true}} {
		res, err := t.limiter.AllowN(ctx, key, step.cost)
		if err != nil {
			return err
		}
		if exact && res.Allowed != step.allowed {
			return fmt.Errorf("a call of %d units was decided wrong: allowed %v, with %d of 5 units left", step.cost, res.Allowed, res.Remaining)
		}
	}
	if _, err := t.limiter.Peek(ctx, key); err != nil {
		return err
	}
	r, err := t.limiter.Reserve(ctx, key, 1)
	if err != nil {
		return err
	}
	if r.Allowed() {
		if err := r.Cancel(ctx); err != nil {
			return err
		}
	}
	if err := t.limiter.Reset(ctx, key); err != nil {
		return err
	}
	if exact { // once is enough for what is the same for all algorithms
		if _, err := t.limiter.AllowOnce(ctx, crand.Text(), key, 1); err != nil {
			return err
		}
		if _, err := t.store.Instances(ctx, "doctor", crand.Text(), time.Second); err != nil {
			return err
		}
	}
	return t.limiter.Reset(ctx, key)
}

// remedy says what to do about the error of a script.
func remedy(err error) string {
	text := err.Error()
	switch {
	case lacksRights(err):
		return "give the user the rights of the ACL line below"
	case strings.Contains(text, "NOREPLICAS"):
		return "bring the replicas back, or lower min-replicas-to-write"
	case strings.Contains(text, "READONLY"):
		return "give the primary's address"
	case strings.Contains(text, "OOM"):
		return "raise maxmemory, or find what fills it"
	case strings.Contains(text, "MISCONF"):
		return "Redis cannot save and refuses writes: the server's log has the reason"
	case errors.Is(err, context.DeadlineExceeded):
		return "the server did not answer in time: look at its load (redis-cli --latency, SLOWLOG GET)"
	default:
		return "see the server's log; if it is none of Redis or Valkey, its scripts may differ"
	}
}

// lacksRights reports whether the user may not send a script, or the script may not do something.
func lacksRights(err error) bool {
	text := err.Error()
	for _, sign := range []string{"NOPERM", "ACL failure", "can't run this command", "can't access at least one of the keys", "No permission"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// latency measures decisions, one after the other.
func (v *visit) latency(ctx context.Context) {
	t, err := v.try(ctx, sash.SlidingLog, 2*latencyCalls)
	if err != nil {
		return // scripts has told
	}
	defer t.clean(ctx)
	for _, address := range sorted(t.keys) {
		key, began := t.keys[address], time.Now()
		var took []time.Duration
		for len(took) < latencyCalls && time.Since(began) < longest {
			before := time.Now()
			if _, err := t.limiter.AllowN(ctx, key, 1); err != nil {
				break
			}
			took = append(took, time.Since(before))
		}
		if len(took) < 10 {
			v.add("latency", node{address: address}, Unchecked, "too few decisions were answered", "")
			continue
		}
		slices.Sort(took)
		p50, p99, most := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
		seen := fmt.Sprintf("p50 %v, p99 %v, most %v of %d decisions; the budget is %v", short(p50), short(p99), short(most), len(took), v.budget)
		level, do := OK, ""
		switch {
		case p99 > v.budget:
			level, do = Fail, "calls will often be answered by policy instead (on_unavailable, or an error): move nearer to the server, look at its load (SLOWLOG GET), or raise the budget"
		case most > v.budget || p50 > v.budget/2:
			level, do = Warn, "some calls will be answered by policy instead (on_unavailable, or an error): look at the network and the server's load (SLOWLOG GET)"
		}
		v.add("latency", node{address: address}, level, seen, do)
	}
}

func short(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}

func sorted(keys map[string]string) []string {
	out := make([]string, 0, len(keys))
	for address := range keys {
		out = append(out, address)
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}

// scriptCommands returns the commands that the store's scripts call, in lower case.
func scriptCommands() []string {
	var out []string
	for _, script := range redisstore.Scripts() {
		for _, part := range strings.Split(script.Text, "call('")[1:] {
			name, _, _ := strings.Cut(part, "'")
			out = append(out, strings.ToLower(name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
