// Package doctor checks whether a Redis is set up well for a limiter and reports what to change.
//
// It writes only keys of its own under the store's prefix, and removes them. A check that the user is not permitted to
// run is reported as unchecked.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/redisclient"
)

// A Level is the severity of a finding.
type Level string

// Levels.
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

// A visit is one run of all checks.
type visit struct {
	client   *redisclient.Client
	prefix   string // of all keys
	budget   time.Duration
	many     bool // there is more than one primary
	watched  bool // Sentinels name the primary
	findings []Finding
}

// Run checks the Redis of a client, for a limiter whose keys begin with a prefix and whose store has so much time for one
// decision. On a server that answers it takes a few seconds at most. It returns an error if the server does not answer or
// does not accept the user.
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

// store is the limiter's store, through the client of this visit.
func (v *visit) store() *redisstore.Store {
	return v.client.Store(&redisstore.Options{Prefix: v.prefix})
}

// add records a finding. It names the node if there are several; an empty address is no node's.
func (v *visit) add(check, address string, level Level, seen, do string) {
	if !v.many {
		address = ""
	}
	v.findings = append(v.findings, Finding{check, address, level, seen, do})
}

// forbidden reports whether the server denied the user permission.
func forbidden(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }

// A Way is how a limiter reaches its Redis. The permissions that its user needs depend on it.
type Way struct {
	Cluster, Sentinel bool
	Database          bool // a database other than 0
	Prefix            string
}

// glob escapes what a pattern of keys does not mean literally. Redis takes none with spaces, and redis-cli reads quotes as its
// own: any character stands for one.
var glob = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`, " ", "?", "\t", "?", "\n", "?", "\v", "?", "\f", "?", "\r", "?", `"`, "?", "'", "?")

// Line returns the ACL rules of a user with exactly the permissions that a limiter needs, whatever it had before.
func Line(user string, way Way) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ACL SETUSER %s reset on >PASSWORD ~%s* +ping +eval +evalsha +wait", user, glob.Replace(way.Prefix))
	if way.Cluster {
		b.WriteString(" +cluster|slots +cluster|shards") // the client uses the second one since version 8
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

// rights reports permissions beyond those that are needed. The scripts have shown whether the user has those.
func (v *visit) rights(ctx context.Context) {
	user, named := "limiter", "the user"
	whoami, err := v.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.AclWhoami().Build() })
	if name, _ := whoami.ToString(); err == nil {
		named = "user " + name
		if name != "default" {
			user = name
		}
	}
	way := Way{Cluster: v.many, Sentinel: v.watched, Database: v.client.Database(), Prefix: v.prefix}
	line := Line(user, way)
	outside := "doctor-outside" // a key that does not begin with the prefix
	if strings.HasPrefix(v.prefix, "d") {
		outside = "outside-doctor"
	}
	var more []string
	for _, one := range []struct { // they only read, and none of them reads user data
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
