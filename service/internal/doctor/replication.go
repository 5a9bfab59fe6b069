package doctor

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A replica is one that a primary knows.
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
	if n.info == nil {
		return
	}
	if n.info["role"] != "master" {
		v.add("replication", n, Fail, "this server is a replica: it refuses every charge", "give the primary's address, or redis+sentinel:// that finds it")
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
	switch {
	case len(replicas)-late < least:
		v.add("replication", n, Fail, fmt.Sprintf("%s, of which %d follow, and min-replicas-to-write is %d: Redis refuses every charge", seen, len(replicas)-late, least), "bring the replicas back, or lower min-replicas-to-write")
	case late > 0:
		v.add("replication", n, Warn, fmt.Sprintf("%s, of which %d do not follow within a second", seen, late), "a failover now would admit again what they lack: look at their link and load")
	case len(replicas) == 0:
		v.add("replication", n, Warn, "primary without a replica: when it is gone there are no decisions, but those of the failure policy", "add a replica and Sentinel, or accept that")
	case n.config == nil:
		v.add("replication", n, Unchecked, seen+", all follow; CONFIG GET is not permitted, so min-replicas-to-write is not known", "run sash doctor once as a user who may run CONFIG GET")
	case least == 0:
		v.add("replication", n, Warn, seen+", all follow; min-replicas-to-write is 0, so a primary that is cut off goes on admitting beside the one that was promoted", "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10; without a replica charges are then refused")
	default:
		v.add("replication", n, OK, fmt.Sprintf("%s, all follow; min-replicas-to-write %d, max-lag %s s", seen, least, n.config["min-replicas-max-lag"]), "")
	}
}
