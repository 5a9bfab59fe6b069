package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A node is what a server says of itself.
type node struct {
	address string
	info    map[string]string // fields of INFO; nil when it may not be asked
	config  map[string]string // of the settings that matter; nil when they may not be asked
	err     error             // why there is no info
}

// settings are those that INFO does not tell.
var settings = []string{"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag", "stop-writes-on-bgsave-error"}

func look(ctx context.Context, c *redis.Client) node {
	n := node{address: address(c)}
	text, err := c.Info(ctx).Result()
	if err != nil {
		n.err = err
		return n
	}
	n.info = fields(text)
	for _, name := range settings {
		values, err := c.ConfigGet(ctx, name).Result()
		if err != nil {
			n.config = nil
			break
		}
		if n.config == nil {
			n.config = make(map[string]string)
		}
		n.config[name] = values[name]
	}
	return n
}

// address is a server's address for messages.
func address(c *redis.Client) string {
	if addr := c.Options().Addr; addr != "FailoverClient" { // what the client calls the primary that Sentinels name
		return addr
	}
	return "the primary"
}

// fields reads what INFO answers.
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

// blind notes that INFO may not be asked, and reports whether that is so.
func (v *visit) blind(check string, n node) bool {
	if n.info != nil {
		return false
	}
	v.add(check, n, Unchecked, "INFO is not answered: "+n.err.Error(), "run sash doctor once as a user who may run INFO and CONFIG GET")
	return true
}

// oldest is the first version with all that the scripts use.
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
	do := "CONFIG SET maxmemory-policy noeviction, and give the limiter a server of its own if this one is a cache"
	switch {
	case policy == "noeviction":
		if evicted > 0 {
			v.add("eviction", n, Warn, fmt.Sprintf("noeviction now, but %d keys were evicted since the start", evicted), "whoever lost a key then was admitted anew; nothing to do if that is past")
			return
		}
		v.add("eviction", n, OK, "noeviction", "")
	case n.number("maxmemory") == 0:
		v.add("eviction", n, Warn, policy+", which does nothing yet because there is no maxmemory", do+" before maxmemory is set")
	default:
		v.add("eviction", n, Fail, fmt.Sprintf("%s: when memory is full Redis drops keys, and a limiter's key among them (all of them expire) admits a whole limit again; %d keys were evicted so far", policy, evicted), do)
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
		v.add("memory", n, Warn, size(used)+" in use and no maxmemory: a server that grows is killed by the system, and forgets", "set maxmemory below what the machine can give")
	case used >= most:
		v.add("memory", n, Fail, seen+": calls that would be admitted are refused by Redis", "raise maxmemory, or find what fills it (redis-cli --bigkeys)")
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
		v.add("persistence", n, Fail, "the append-only file cannot be written, and Redis refuses writes", "make room on the disk; the server's log has the reason")
	case n.info["rdb_last_bgsave_status"] == "err" && n.config["stop-writes-on-bgsave-error"] != "no":
		v.add("persistence", n, Fail, "the last snapshot failed, and Redis refuses writes until one succeeds", "make room for the snapshot; the server's log has the reason")
	case appends:
		seen := "append-only file"
		if fsync := n.config["appendfsync"]; fsync != "" {
			seen += ", appendfsync " + fsync
		}
		v.add("persistence", n, OK, seen, "")
	case replicas > 0:
		v.add("persistence", n, OK, "no append-only file; replicas keep the charges", "")
	case n.config == nil:
		v.add("persistence", n, Unchecked, "no append-only file; CONFIG GET is not permitted, so snapshots are not known", "run sash doctor once as a user who may run CONFIG GET")
	case n.config["save"] != "":
		v.add("persistence", n, Warn, "snapshots only: a restart forgets what was charged since the last one, and admits it again", "appendonly yes, with appendfsync everysec, loses a second at most")
	default:
		v.add("persistence", n, Warn, "none: a restart forgets every charge, and admits up to a whole limit again for each key", "appendonly yes, with appendfsync everysec, if that matters; short windows may not need it")
	}
}
