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
	n.info = make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			n.info[name] = value
		}
	}
	config := make(map[string]string)
	for _, name := range settings { // Redis 6.2 takes one
		reply, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.ConfigGet().Parameter(name).Build() })
		if err != nil {
			return n
		}
		values, _ := reply.AsStrMap()
		config[name] = values[name]
	}
	n.config = config
	return n
}

func (n node) number(field string) int64 {
	v, _ := strconv.ParseInt(n.info[field], 10, 64)
	return v
}

// version compares with the first version that supports all that the scripts use. Every Valkey does.
func (v *visit) version(n node) {
	if valkey := n.info["valkey_version"]; valkey != "" {
		v.add("version", n.address, OK, "Valkey "+valkey, "")
		return
	}
	text := n.info["redis_version"]
	var major, minor int
	if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
		v.add("version", n.address, Unchecked, fmt.Sprintf("the version is %q", text), "")
	} else if major < 6 || major == 6 && minor < 2 {
		v.add("version", n.address, Fail, "Redis "+text, "upgrade to Redis 6.2 or later, or Valkey")
	} else {
		v.add("version", n.address, OK, "Redis "+text, "")
	}
}

func (v *visit) eviction(n node) {
	policy, evicted := n.info["maxmemory_policy"], n.number("evicted_keys")
	do := "CONFIG SET maxmemory-policy noeviction, and give the limiter its own server if this one is a cache"
	switch {
	case policy == "noeviction" && evicted > 0:
		v.add("eviction", n.address, Warn, fmt.Sprintf("noeviction now, but %d keys were evicted since the server started", evicted),
			"the subjects of those keys were admitted a whole limit again; nothing to do if that is past")
	case policy == "noeviction":
		v.add("eviction", n.address, OK, policy, "")
	case n.number("maxmemory") == 0:
		v.add("eviction", n.address, Warn, policy+", without effect as long as there is no maxmemory", do+" before you set maxmemory")
	default:
		v.add("eviction", n.address, Fail, fmt.Sprintf("%s: when memory is full Redis evicts keys, including a limiter's (all of which expire), "+
			"whose subjects are then admitted a whole limit again; %d keys were evicted so far", policy, evicted), do)
	}
}

func (v *visit) memory(n node) {
	most, used := n.number("maxmemory"), n.number("used_memory")
	seen := fmt.Sprintf("%s of %s in use", size(used), size(most))
	switch {
	case most == 0:
		v.add("memory", n.address, Warn, size(used)+" in use and no maxmemory: a server that grows too large is killed by the system and loses its state",
			"set maxmemory below what the machine can spare")
	case used >= most:
		v.add("memory", n.address, Fail, seen+": Redis rejects calls that would be admitted", "raise maxmemory, or find what fills it (redis-cli --bigkeys)")
	case used > most*4/5:
		v.add("memory", n.address, Warn, seen, "raise maxmemory: when it is full, calls that would be admitted fail")
	default:
		v.add("memory", n.address, OK, seen, "")
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
	const improve = "appendonly yes, with appendfsync everysec, loses a second at most; short windows may not need it"
	appends := n.info["aof_enabled"] == "1"
	switch {
	case appends && n.info["aof_last_write_status"] == "err":
		v.add("persistence", n.address, Fail, "the append-only file cannot be written, and Redis rejects writes", "free space on the disk; the server's log has the reason")
	case n.info["rdb_last_bgsave_status"] == "err" && n.config["stop-writes-on-bgsave-error"] != "no":
		v.add("persistence", n.address, Fail, "the last snapshot failed, and Redis rejects writes until one succeeds",
			"free space for the snapshot; the server's log has the reason")
	case appends:
		v.add("persistence", n.address, OK, strings.TrimSuffix("append-only file, appendfsync "+n.config["appendfsync"], ", appendfsync "), "")
	case n.number("connected_slaves") > 0:
		v.add("persistence", n.address, OK, "no append-only file; replicas keep the charges", "")
	case n.config == nil:
		v.add("persistence", n.address, Unchecked, "no append-only file; CONFIG GET is not permitted, so the snapshot settings are unknown", asAdministrator)
	case n.config["save"] != "":
		v.add("persistence", n.address, Warn, "snapshots only: a restart loses the charges since the last one, and those units are admitted again", improve)
	default:
		v.add("persistence", n.address, Warn, "none: a restart loses every charge, and up to a whole limit is admitted again for each key", improve)
	}
}
