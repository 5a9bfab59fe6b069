package doctor

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/cause"
)

const (
	latencyCalls = 200
	// longest bounds the measurement on a distant server.
	longest = 5 * time.Second
)

// window is the window of trials. Trials do not remove heartbeats, which expire after one window.
const window = 5 * time.Second

type trial struct {
	limiter *sash.Limiter
	store   *redisstore.Store
	prefix  string
	keys    []place
}

type place struct{ address, key string }

func (v *visit) try(ctx context.Context, algorithm sash.Algorithm, units int64) (*trial, error) {
	t := &trial{store: v.client.Store(&redisstore.Options{Prefix: v.prefix}), prefix: "doctor-" + crand.Text()}
	opts := &sash.Options{Algorithm: algorithm, Prefix: t.prefix}
	if algorithm == sash.SlidingBuckets {
		opts.Resolution = time.Second
	}
	var err error
	if t.limiter, err = sash.New(t.store, opts, sash.Every(units, window)); err != nil {
		return nil, err
	}
	if !v.many {
		t.keys = []place{{"", "key"}}
		return t, nil
	}
	slots, err := v.client.Slots(ctx)
	for _, s := range slots {
		if len(s.Nodes) == 0 || slices.ContainsFunc(t.keys, func(p place) bool { return p.address == s.Nodes[0] }) {
			continue
		}
		for i := range 1_000_000 { // a node may have few slots
			key := fmt.Sprintf("key-{%d}", i) // with a hash tag, so that all data of one key is in its slot
			if slot := t.store.Slot(t.prefix+":"+key, t.limiter.Policy()); s.First <= slot && slot <= s.Last {
				t.keys = append(t.keys, place{s.Nodes[0], key})
				break
			}
		}
	}
	return t, err
}

func (t *trial) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, p := range t.keys {
		_ = t.limiter.Reset(ctx, p.key)
	}
}

// scripts runs every script on every primary. It reports a problem that all scripts share once.
func (v *visit) scripts(ctx context.Context) {
	worked, algorithms := 0, sash.Algorithms()
	for _, algorithm := range algorithms {
		t, err := v.try(ctx, algorithm, 5)
		if err != nil {
			v.add("scripts", "", Fail, fmt.Sprintf("%s: %v", algorithm, err), "see the error; without the nodes of the cluster there are no decisions")
			return
		}
		var failed error
		for _, p := range t.keys {
			if err := t.round(ctx, p.key, algorithm.Exact()); err != nil {
				failed = err
				v.add("scripts", p.address, Fail, fmt.Sprintf("%s: %v", algorithm, err), remedy(err))
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
		v.add("scripts", "", OK, fmt.Sprintf("all %d algorithms decide, settle and reset, and instances are counted", worked), "")
	}
}

// round makes every kind of call on one key. An algorithm that is not exact may admit the second call.
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
			return fmt.Errorf("wrong decision on a call of %d units: allowed %v, with %d of 5 units left", step.cost, res.Allowed, res.Remaining)
		}
	}
	if _, err := t.limiter.Peek(ctx, key); err != nil {
		return err
	}
	r, err := t.limiter.Reserve(ctx, key, 1, nil)
	if err != nil {
		return err
	}
	if r.Allowed() {
		if err := r.Cancel(ctx); err != nil {
			return err
		}
	}
	for range 2 {
		if _, err := t.limiter.AllowOnce(ctx, "doctor", key, 1); err != nil {
			return err
		}
	}
	look := driver.Settlement{Request: driver.Request{Key: key, Policy: t.limiter.Policy()}}
	if err := t.store.Do(ctx, &driver.Batch{Ops: []driver.Op{{Kind: driver.Cool, Settlement: look}}}); err != nil {
		return err
	}
	if n, err := t.store.Instances(ctx, t.prefix+":"+key, "doctor", window); err != nil || n != 1 {
		return cmp.Or(err, fmt.Errorf("%d instances were counted instead of one", n))
	}
	return t.limiter.Reset(ctx, key)
}

const giveRights = "give the user the permissions of the ACL line below"

var remedies = map[string]string{
	"replicas": "bring the replicas back, or lower min-replicas-to-write",
	"readonly": "use the primary's address",
	"memory":   "raise maxmemory, or find what fills it; if Redis cannot save, the server's log has the reason",
	"budget":   "the server did not answer in time: check its load (redis-cli --latency, SLOWLOG GET)",
}

func remedy(err error) string {
	if lacksRights(err) {
		return giveRights
	}
	return cmp.Or(remedies[cause.Of(err)], "see the server's log; if it is neither Redis nor Valkey, its scripting may differ")
}

func lacksRights(err error) bool {
	signs := []string{"NOPERM", "ACL failure", "can't run this command", "can't access at least one of the keys", "No permission"}
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(err.Error(), sign) })
}

func (v *visit) latency(ctx context.Context) {
	t, err := v.try(ctx, sash.SlidingLog, 2*latencyCalls)
	if err != nil {
		return // scripts has reported it
	}
	defer t.clean(ctx)
	for _, p := range t.keys {
		var took []time.Duration
		for began := time.Now(); len(took) < latencyCalls && time.Since(began) < longest; {
			before := time.Now()
			if _, err := t.limiter.AllowN(ctx, p.key, 1); err != nil {
				break
			}
			took = append(took, time.Since(before))
		}
		if len(took) < 10 {
			v.add("latency", p.address, Unchecked, "too few decisions got an answer", "")
			continue
		}
		slices.Sort(took)
		p50, p99, most := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
		seen := fmt.Sprintf("p50 %v, p99 %v, max %v of %d decisions; the budget is %v", p50.Round(time.Microsecond), p99.Round(time.Microsecond), most.Round(time.Microsecond), len(took), v.budget)
		level, do := OK, ""
		switch {
		case p99 > v.budget:
			level, do = Fail, "calls will often end without a decision: move closer to the server, check its load (SLOWLOG GET), or raise the budget"
		case most > v.budget || p50 > v.budget/2:
			level, do = Warn, "some calls will end without a decision: check the network and the server's load (SLOWLOG GET)"
		}
		v.add("latency", p.address, level, seen, do)
	}
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
