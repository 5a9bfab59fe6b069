// Package doctor checks whether a Redis is set up well for a limiter and reports what to change.
//
// It writes only keys of its own under the store's prefix, and removes them. A check that the user is not permitted to
// run is reported as unchecked.
package doctor

import (
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
