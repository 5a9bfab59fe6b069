// Package doctor looks at a Redis that a limiter uses and says what is wrong with it for that purpose.
//
// It changes nothing but keys of its own under the store's prefix, which it removes. What the user may not
// look at is reported as unchecked.
package doctor

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/service/internal/redisclient"
)

// A Level says how bad a finding is.
type Level string

// Levels.
const (
	OK        Level = "ok"
	Unchecked Level = "unchecked" // the user may not look, or there was no answer
	Warn      Level = "warn"      // a promise is weaker than it could be
	Fail      Level = "fail"      // a promise does not hold, or calls fail
)

// A Finding is what one check saw.
type Finding struct {
	Check string `json:"check"`
	Node  string `json:"node,omitempty"` // an address, where there are several
	Level Level  `json:"level"`
	Seen  string `json:"seen"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// Options for Run.
type Options struct {
	// Budget is the time that one decision may take.
	Budget time.Duration
}

// A visit is one run.
type visit struct {
	url      string
	client   redis.UniversalClient
	budget   time.Duration
	many     bool // there is more than one primary
	watched  bool // Sentinels name the primary
	findings []Finding
}

// Run looks at the Redis of a URL, through a client for that URL. It takes a few seconds at most on a server
// that answers. An error means that it does not answer, or does not let the user in.
func Run(ctx context.Context, url string, client redis.UniversalClient, opts Options) ([]Finding, error) {
	v := &visit{url: url, client: client, budget: opts.Budget}
	if err := client.Ping(ctx).Err(); err != nil && !forbidden(err) {
		return nil, err
	}
	_, v.many = client.(*redis.ClusterClient)
	var nodes []node
	err := redisclient.Primaries(ctx, client, func(ctx context.Context, c *redis.Client) error {
		n := look(ctx, c)
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
	v.topology(ctx)
	v.clocks(ctx, nodes)
	v.scripts(ctx)
	v.waits(ctx)
	v.latency(ctx)
	v.rights(ctx)
	return v.findings, ctx.Err()
}

// add notes a finding on a node, which is named where there are several.
func (v *visit) add(check string, n node, level Level, seen, do string) {
	f := Finding{Check: check, Level: level, Seen: seen, Do: do}
	if v.many {
		f.Node = n.address
	}
	v.findings = append(v.findings, f)
}

// note adds a finding that is not about one node.
func (v *visit) note(check string, level Level, seen, do string) {
	v.findings = append(v.findings, Finding{Check: check, Level: level, Seen: seen, Do: do})
}
