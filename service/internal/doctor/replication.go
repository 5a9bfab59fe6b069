package doctor

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A replica is a replica as its primary reports it.
type replica struct {
	address string
	online  bool
	lag     int64 // seconds
}

func (n node) replicas() (out []replica) {
	for i := range n.number("connected_slaves") {
		r := replica{}
		var host, port string
		for part := range strings.SplitSeq(n.info[fmt.Sprint("slave", i)], ",") {
			name, value, _ := strings.Cut(part, "=")
			switch name {
			case "ip":
				host = value
			case "port":
				port = value
			case "state":
				r.online = value == "online"
			case "lag":
				r.lag, _ = strconv.ParseInt(value, 10, 64)
			}
		}
		r.address = net.JoinHostPort(host, port)
		out = append(out, r)
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
	// Redis 6.2 applies min-replicas-to-write to commands, and not to scripts.
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
