// Package doctor checks whether a Redis is set up well for a limiter and reports what to change.
//
// It writes only keys of its own under the store's prefix, and removes them. A check that the user is not permitted to
// run is reported as unchecked.
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

	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/redisclient"
)

// A Level is the severity of a finding.
type Level string

// The levels.
const (
	OK        Level = "ok"
	Unchecked Level = "unchecked" // the user lacks permission, or there was no answer
	Warn      Level = "warn"      // a guarantee is weaker than it could be
	Fail      Level = "fail"      // a guarantee does not hold, or calls fail
)

// A Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	Node  string `json:"node,omitempty"` // an address, if there are several
	Level Level  `json:"level"`
	Seen  string `json:"seen"`
	Do    string `json:"do,omitempty"` // the remedy
}

// asAdministrator is the remedy if the user may not read what a check needs.
const asAdministrator = "run sash doctor once as a user that may run INFO and CONFIG GET"

type visit struct {
	client   *redisclient.Client
	prefix   string // of all keys
	budget   time.Duration
	many     bool // there is more than one primary
	watched  bool // Sentinels name the primary
	findings []Finding
}

// Run checks the Redis of a client for a limiter with a prefix and a budget for one decision. It takes a few
// seconds if the server answers. It returns an error if the server does not answer or rejects the user.
func Run(ctx context.Context, client *redisclient.Client, prefix string, budget time.Duration) ([]Finding, error) {
	v := &visit{client: client, prefix: prefix, budget: budget, many: client.Cluster()}
	if err := client.Ping(ctx); err != nil && !forbidden(err) {
		return nil, err
	}
	var nodes []node
	err := client.Primaries(ctx, func(address string, c *redisclient.Client) error {
		n := inspect(ctx, address, c)
		nodes = append(nodes, n)
		if n.info == nil {
			v.add("version", address, Unchecked, "INFO failed: "+n.err.Error(), asAdministrator)
			return nil
		}
		v.version(n)
		v.eviction(n)
		v.memory(n)
		v.persistence(n)
		v.replication(n)
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.topology(ctx, nodes)
	v.clocks(ctx, nodes)
	v.scripts(ctx)
	v.latency(ctx)
	v.rights(ctx)
	return v.findings, ctx.Err()
}

// add records a finding. If there are several nodes, the finding names the one at address; an empty address names none.
func (v *visit) add(check, address string, level Level, seen, do string) {
	if !v.many {
		address = ""
	}
	v.findings = append(v.findings, Finding{check, address, level, seen, do})
}

func forbidden(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }

// A Way is how a limiter reaches its Redis. The permissions that its user needs depend on it.
type Way struct {
	Cluster, Sentinel bool
	Database          bool // a database other than 0
	Prefix            string
}

// glob escapes a key pattern. Redis accepts no spaces and redis-cli interprets quotes, so "?" replaces these.
var glob = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`, " ", "?", "\t", "?", "\n", "?", "\v", "?", "\f", "?", "\r", "?", `"`, "?", "'", "?")

// Line returns the ACL rules that give a user exactly the permissions that a limiter needs, whatever it had before.
func Line(user string, way Way) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ACL SETUSER %s reset on >PASSWORD ~%s* +ping +eval +evalsha +wait", user, glob.Replace(way.Prefix))
	if way.Cluster {
		b.WriteString(" +cluster|slots +cluster|shards") // the client uses cluster|shards since version 8
	}
	if way.Sentinel {
		b.WriteString(" +role") // checks that the server that Sentinel names is the primary
	}
	if way.Database {
		b.WriteString(" +select")
	}
	for _, name := range scriptCommands() {
		b.WriteString(" +" + name)
	}
	return b.String()
}

// rights reports unneeded permissions. The scripts have shown whether the user has the needed ones.
func (v *visit) rights(ctx context.Context) {
	user, named := "limiter", "the user"
	whoami, err := v.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.AclWhoami().Build() })
	if name, _ := whoami.ToString(); err == nil {
		named = "user " + name
		if name != "default" {
			user = name
		}
	}
	way := Way{Cluster: v.many, Sentinel: v.watched, Database: v.client.Database() > 0, Prefix: v.prefix}
	line := Line(user, way)
	outside := "doctor-outside" // a key that does not begin with the prefix
	if strings.HasPrefix(v.prefix, "d") {
		outside = "outside-doctor"
	}
	var more []string
	for _, one := range []struct { // read-only commands that touch no user data
		may   string
		build func(rueidis.Builder) rueidis.Completed
	}{
		{"read the configuration", func(b rueidis.Builder) rueidis.Completed { return b.ConfigGet().Parameter("maxmemory").Build() }},
		{"use keys outside " + v.prefix + "*", func(b rueidis.Builder) rueidis.Completed { return b.Exists().Key(outside).Build() }},
		{"list all users", func(b rueidis.Builder) rueidis.Completed { return b.AclList().Build() }},
	} {
		if _, err := v.client.Do(ctx, one.build); err == nil {
			more = append(more, one.may)
		}
	}
	level, seen, do := OK, named+" may do what is needed, and not much else", line
	failed := slices.IndexFunc(v.findings, func(f Finding) bool { return f.Check == "scripts" && f.Level == Fail })
	switch {
	case failed >= 0 && v.findings[failed].Do == giveRights:
		level, seen = Fail, named+" may not do all that is needed (see scripts)"
	case failed >= 0:
		level, seen = Unchecked, named+" may perhaps do what is needed (see scripts)"
	case len(more) > 0:
		level, seen, do = Warn, named+" may do what is needed, and "+strings.Join(more, ", "), "give the limiter its own user: "+line
	}
	v.add("acl", "", level, seen, do)
}

type node struct {
	address string
	info    map[string]string // fields of INFO; nil if the user may not run it
	config  map[string]string // the relevant settings; nil if the user may not read them
	err     error             // why info is nil
}

// settings are the settings that INFO does not contain.
var settings = []string{
	"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag", "stop-writes-on-bgsave-error", "cluster-require-full-coverage",
}

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

// version checks for the first version that supports all features of the scripts. Every Valkey supports them.
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
	seen := fmt.Sprintf("%s of %s in use", output.Bytes(used), output.Bytes(most))
	switch {
	case most == 0:
		v.add("memory", n.address, Warn, output.Bytes(used)+" in use and no maxmemory: a server that grows too large is killed by the system and loses its state",
			"set maxmemory below what the machine can spare")
	case used >= most:
		v.add("memory", n.address, Fail, seen+": Redis rejects calls that would be admitted", "raise maxmemory, or find what fills it (redis-cli --bigkeys)")
	case used > most*4/5:
		v.add("memory", n.address, Warn, seen, "raise maxmemory: when it is full, calls that would be admitted fail")
	default:
		v.add("memory", n.address, OK, seen, "")
	}
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

type replica struct {
	address string
	online  bool
	lag     int64 // seconds
}

func (n node) replicas() (out []replica) {
	for i := range n.number("connected_slaves") {
		fields := make(map[string]string)
		for part := range strings.SplitSeq(n.info[fmt.Sprint("slave", i)], ",") {
			name, value, _ := strings.Cut(part, "=")
			fields[name] = value
		}
		lag, _ := strconv.ParseInt(fields["lag"], 10, 64)
		out = append(out, replica{net.JoinHostPort(fields["ip"], fields["port"]), fields["state"] == "online", lag})
	}
	return out
}

func (v *visit) replication(n node) {
	if n.info["role"] != "master" {
		v.add("replication", n.address, Fail, "this server is a replica: it rejects every charge", "use the primary's address, or redis+sentinel:// to find it")
		return
	}
	replicas, late := n.replicas(), 0
	for _, r := range replicas {
		if !r.online || r.lag > 1 {
			late++
		}
	}
	least, _ := strconv.Atoi(n.config["min-replicas-to-write"])
	seen := fmt.Sprintf("primary with %d replicas", len(replicas))
	// Redis 6.2 applies min-replicas-to-write to commands, but not to scripts.
	ignored := strings.HasPrefix(n.info["redis_version"], "6.")
	const upgrade, apart = "upgrade to Redis 7.0 or later, or Valkey", "a primary that is cut off continues to admit calls beside the promoted one"
	level, do := Warn, ""
	switch {
	case least > 0 && ignored:
		seen += fmt.Sprintf("; min-replicas-to-write is %d, but Redis 6.2 does not apply it to scripts: %s", least, apart)
		do = upgrade
	case len(replicas)-late < least:
		level, seen = Fail, fmt.Sprintf("%s, of which %d follow, and min-replicas-to-write is %d: Redis rejects every charge", seen, len(replicas)-late, least)
		do = "bring the replicas back, or lower min-replicas-to-write"
	case late > 0:
		seen += fmt.Sprintf(", of which %d do not follow within a second", late)
		do = "after a failover now, the charges that they lack would be admitted again: check their link and load"
	case len(replicas) == 0:
		seen, do = "primary without a replica: when it is down only the failure mode answers", "add a replica and Sentinel, or accept that"
	case n.config == nil:
		level, seen = Unchecked, seen+", all follow; CONFIG GET is not permitted, so min-replicas-to-write is unknown"
		do = asAdministrator
	case least == 0 && ignored:
		seen += ", all follow; Redis 6.2 does not apply min-replicas-to-write to scripts: " + apart
		do = upgrade + ", and CONFIG SET min-replicas-to-write 1"
	case least == 0:
		seen += ", all follow; min-replicas-to-write is 0, so " + apart
		do = "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10; without a replica Redis then rejects charges"
	default:
		level, seen = OK, fmt.Sprintf("%s, all follow; min-replicas-to-write %d, max-lag %s s", seen, least, n.config["min-replicas-max-lag"])
	}
	v.add("replication", n.address, level, seen, do)
}
