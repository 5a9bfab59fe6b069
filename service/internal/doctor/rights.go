package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

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
