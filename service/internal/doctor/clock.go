package doctor

import (
	"context"
	"fmt"
	"time"

	"example.com/sash/service/internal/redisclient"
)

const (
	clockSamples = 5
	// A difference below this is harmless: a failover shifts the charges by as much.
	smallOffset = 200 * time.Millisecond
	largeOffset = 10 * time.Second
)

// clocks compares the clocks of primaries and their replicas with this machine's.
func (v *visit) clocks(ctx context.Context, nodes []node) {
	var read []clock
	compare := func(address string, c *redisclient.Client) error {
		ahead, err := offset(ctx, c)
		if err != nil {
			v.findings = append(v.findings, Finding{Check: "clock", Node: address, Level: Unchecked, Seen: "TIME failed: " + err.Error()})
			return nil //nolint:nilerr // it is a finding
		}
		read = append(read, clock{address, ahead})
		return nil
	}
	_ = v.client.Primaries(ctx, compare)
	for _, n := range nodes {
		for _, r := range n.replicas() {
			c := v.client.Node(r.address)
			_ = compare(r.address, c)
			c.Close()
		}
	}
	v.findings = append(v.findings, judgeClocks(read)...)
}

// A clock is a server's clock compared with this machine's.
type clock struct {
	address string
	ahead   time.Duration
}

func judgeClocks(read []clock) (out []Finding) {
	var least, most time.Duration
	for i, c := range read {
		if i == 0 {
			least, most = c.ahead, c.ahead
		}
		least, most = min(least, c.ahead), max(most, c.ahead)
		f := Finding{Check: "clock", Node: c.address, Level: OK, Seen: fmt.Sprintf("%v ahead of this machine's", c.ahead.Round(time.Millisecond))}
		if c.ahead < 0 {
			f.Seen = fmt.Sprintf("%v behind this machine's", -c.ahead.Round(time.Millisecond))
		}
		if c.ahead.Abs() >= smallOffset {
			f.Level, f.Do = Warn, "synchronize both clocks with NTP; decisions use the server's clock, but calendar limits and log times use this machine's"
		}
		out = append(out, f)
	}
	if apart := most - least; apart >= smallOffset {
		level := Warn
		if apart >= largeOffset {
			level = Fail
		}
		seen := fmt.Sprintf("the servers' clocks are %v apart: after a failover to one that is ahead, units are admitted that much early; "+
			"after one to a clock that is behind, they are held that much longer", apart.Round(time.Millisecond))
		out = append(out, Finding{Check: "clock", Level: level, Seen: seen, Do: "synchronize the servers' clocks with NTP"})
	}
	return out
}

// offset returns a server's clock minus this machine's, from the fastest of several samples.
func offset(ctx context.Context, c *redisclient.Client) (time.Duration, error) {
	var best, ahead time.Duration
	for i := range clockSamples {
		before := time.Now()
		at, err := c.Time(ctx)
		if err != nil {
			return 0, err
		}
		if took := time.Since(before); i == 0 || took < best {
			best, ahead = took, at.Sub(before.Add(took/2))
		}
	}
	return ahead, nil
}
