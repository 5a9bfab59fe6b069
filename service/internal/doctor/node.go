package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"example.com/sash/service/internal/redisclient"
)

// A node is what a server reports about itself.
type node struct {
	address string
	info    map[string]string // fields of INFO; nil if the user may not run it
	config  map[string]string // the relevant settings; nil if the user may not read them
	err     error             // why info is nil
}

// settings are those that INFO does not contain.
var settings = []string{
	"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag", "stop-writes-on-bgsave-error", "cluster-require-full-coverage",
}

// inspect reads what a server reports about itself.
func inspect(ctx context.Context, address string, c *redisclient.Client) node {
	n := node{address: address}
	reply, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Info().Build() })
	text, _ := reply.ToString()
	if err != nil {
		n.err = err
		return n
	}
	n.info = fields(text)
	for _, name := range settings {
		reply, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.ConfigGet().Parameter(name).Build() })
		if err != nil {
			n.config = nil
			break
		}
		if n.config == nil {
			n.config = make(map[string]string)
		}
		values, _ := reply.AsStrMap()
		n.config[name] = values[name]
	}
	return n
}

// fields parses the answer of INFO.
func fields(text string) map[string]string {
	out := make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

func (n node) number(field string) int64 {
	v, _ := strconv.ParseInt(n.info[field], 10, 64)
	return v
}

// blind reports whether INFO failed, and records that as a finding.
func (v *visit) blind(check string, n node) bool {
	if n.info != nil {
		return false
	}
	v.add(check, n, Unchecked, "INFO failed: "+n.err.Error(), "run sash doctor once as a user that may run INFO and CONFIG GET")
	return true
}

// oldest is the first version that supports all that the scripts use.
var oldest = [2]int{6, 2}

func (v *visit) version(n node) {
	if v.blind("version", n) {
		return
	}
	name, text := "Redis", n.info["redis_version"]
	if n.info["valkey_version"] != "" {
		name, text = "Valkey", n.info["valkey_version"]
	}
	if name == "Valkey" {
		v.add("version", n, OK, name+" "+text, "")
		return
	}
	var have [2]int
	if _, err := fmt.Sscanf(text, "%d.%d", &have[0], &have[1]); err != nil {
		v.add("version", n, Unchecked, fmt.Sprintf("the version is %q", text), "")
		return
	}
	if have[0] < oldest[0] || have[0] == oldest[0] && have[1] < oldest[1] {
		v.add("version", n, Fail, name+" "+text, "upgrade to Redis 6.2 or later, or Valkey")
		return
	}
	v.add("version", n, OK, name+" "+text, "")
}

func (v *visit) eviction(n node) {
	if n.info == nil {
		return
	}
	policy, evicted := n.info["maxmemory_policy"], n.number("evicted_keys")
	do := "CONFIG SET maxmemory-policy noeviction, and give the limiter its own server if this one is a cache"
	switch {
	case policy == "noeviction":
		if evicted > 0 {
			v.add("eviction", n, Warn, fmt.Sprintf("noeviction now, but %d keys were evicted since the server started", evicted), "the subjects of those keys were admitted a whole limit again; nothing to do if that is past")
			return
		}
		v.add("eviction", n, OK, "noeviction", "")
	case n.number("maxmemory") == 0:
		v.add("eviction", n, Warn, policy+", without effect as long as there is no maxmemory", do+" before you set maxmemory")
	default:
		v.add("eviction", n, Fail, fmt.Sprintf("%s: when memory is full Redis evicts keys, including a limiter's (all of which expire), whose subjects are then admitted a whole limit again; %d keys were evicted so far", policy, evicted), do)
	}
}

func (v *visit) memory(n node) {
	if n.info == nil {
		return
	}
	most, used := n.number("maxmemory"), n.number("used_memory")
	seen := fmt.Sprintf("%s of %s in use", size(used), size(most))
	switch {
	case most == 0:
		v.add("memory", n, Warn, size(used)+" in use and no maxmemory: a server that grows too large is killed by the system and loses its state", "set maxmemory below what the machine can spare")
	case used >= most:
		v.add("memory", n, Fail, seen+": Redis rejects calls that would be admitted", "raise maxmemory, or find what fills it (redis-cli --bigkeys)")
	case used > most*4/5:
		v.add("memory", n, Warn, seen, "raise maxmemory: when it is full, calls that would be admitted fail")
	default:
		v.add("memory", n, OK, seen, "")
	}
}

func size(n int64) string {
	const mib = 1 << 20
	if n < mib {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/mib)
}

func (v *visit) persistence(n node) {
	if n.info == nil {
		return
	}
	appends, replicas := n.info["aof_enabled"] == "1", n.number("connected_slaves")
	switch {
	case appends && n.info["aof_last_write_status"] == "err":
		v.add("persistence", n, Fail, "the append-only file cannot be written, and Redis rejects writes", "free space on the disk; the server's log has the reason")
	case n.info["rdb_last_bgsave_status"] == "err" && n.config["stop-writes-on-bgsave-error"] != "no":
		v.add("persistence", n, Fail, "the last snapshot failed, and Redis rejects writes until one succeeds", "free space for the snapshot; the server's log has the reason")
	case appends:
		seen := "append-only file"
		if fsync := n.config["appendfsync"]; fsync != "" {
			seen += ", appendfsync " + fsync
		}
		v.add("persistence", n, OK, seen, "")
	case replicas > 0:
		v.add("persistence", n, OK, "no append-only file; replicas keep the charges", "")
	case n.config == nil:
		v.add("persistence", n, Unchecked, "no append-only file; CONFIG GET is not permitted, so the snapshot settings are unknown", "run sash doctor once as a user that may run CONFIG GET")
	case n.config["save"] != "":
		v.add("persistence", n, Warn, "snapshots only: a restart loses the charges since the last one, and those units are admitted again", "appendonly yes, with appendfsync everysec, loses a second at most")
	default:
		v.add("persistence", n, Warn, "none: a restart loses every charge, and up to a whole limit is admitted again for each key", "appendonly yes, with appendfsync everysec, if that matters; short windows may not need it")
	}
}
