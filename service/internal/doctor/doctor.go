// Package doctor checks whether a Redis is set up well for a limiter and reports what to change.
//
// It writes only keys of its own under the store's prefix, and removes them. A check that the user is not permitted to
// run is reported as unchecked.
package doctor

import (
	"cmp"
	"context"
	"time"

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

// Options for Run.
type Options struct {
	// Prefix begins all keys of the limiter. Empty is that of package redisstore.
	Prefix string
	// Budget is the time that the store has for one decision.
	Budget time.Duration
	// Home says that this Redis is the home of several regions. Leases are those of the rules that it is the home of.
	Home   bool
	Leases []Lease
}

// A Lease is the longest lease of a rule with scope: global.
type Lease struct {
	Rule    string
	Longest time.Duration
}

// A visit is one run of all checks.
type visit struct {
	client   *redisclient.Client
	prefix   string // of all keys
	budget   time.Duration
	many     bool          // there is more than one primary
	watched  bool          // Sentinels name the primary
	way      time.Duration // how long almost every decision takes; zero is unknown
	findings []Finding
}

// Run checks the Redis of a client. On a server that answers it takes a few seconds at most.
// It returns an error if the server does not answer or does not accept the user.
func Run(ctx context.Context, client *redisclient.Client, opts Options) ([]Finding, error) {
	v := &visit{client: client, prefix: cmp.Or(opts.Prefix, redisstore.DefaultPrefix), budget: opts.Budget}
	if err := client.Ping(ctx); err != nil && !forbidden(err) {
		return nil, err
	}
	v.many = client.Cluster()
	var nodes []node
	err := client.Primaries(ctx, func(address string, c *redisclient.Client) error {
		n := inspect(ctx, address, c)
		nodes = append(nodes, n)
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
	v.waits(ctx)
	v.latency(ctx)
	if opts.Home {
		v.leases(opts.Leases)
	}
	v.rights(ctx)
	return v.findings, ctx.Err()
}

// store is the limiter's store, through the client of this visit.
func (v *visit) store() *redisstore.Store {
	return v.client.Store(&redisstore.Options{Prefix: v.prefix})
}

// add records a finding on a node, which it names if there are several.
func (v *visit) add(check string, n node, level Level, seen, do string) {
	f := Finding{Check: check, Level: level, Seen: seen, Do: do}
	if v.many {
		f.Node = n.address
	}
	v.findings = append(v.findings, f)
}

// note records a finding that is not about one node.
func (v *visit) note(check string, level Level, seen, do string) {
	v.findings = append(v.findings, Finding{Check: check, Level: level, Seen: seen, Do: do})
}
