package netbench

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/redistest"
	"example.com/sash/rueidisstore"
)

const (
	// inAll is the calls a second on a cluster of any size. It leaves two processors half idle.
	inAll = 12_000
	// clusterSubjects is the number of subjects, spread over the slots.
	clusterSubjects = 10_000
)

// clusterSizes are the primaries of the clusters.
var clusterSizes = []int{1, 2, 4, 8}

// forEach is the calls a second for each primary. The largest cluster then has inAll.
var forEach = inAll / clusterSizes[len(clusterSizes)-1]

// The meters of a run on a cluster, in their order.
const (
	primariesTime = iota
	callerTime
	bothTimes
)

// primaries measures clusters of which each has twice the primaries of the last one: at the same rate in all, and at the
// same rate for each primary.
func primaries(r *report.Report, data map[string]any) error {
	clusters := make([]*redistest.Cluster, len(clusterSizes))
	for i, n := range clusterSizes {
		r.Say("a cluster of %d primaries", n)
		c, err := redistest.RunCluster(redistest.ClusterOptions{Primaries: n, NodeTimeout: 15 * time.Second})
		if err != nil {
			return err
		}
		defer c.Stop()
		clusters[i] = c
	}
	rest := report.NewTable("primaries", "processor time of all primaries at rest, ms a second")
	for i, n := range clusterSizes {
		idle, err := load.AtRest(processorOf(clusters[i]), 4*r.Turn)
		if err != nil {
			return err
		}
		rest.Row(n, report.Number(idle))
	}
	all, each := newClusterTables(", same load in all"), newClusterTables(", same load each")
	for _, way := range []struct{ client, decorator string }{{goRedis, "plain"}, {rueidisDefault, "coalesce"}} {
		name := fmt.Sprintf("Sash %s, %s", way.decorator, way.client)
		r.Say("%s on clusters", name)
		figures, err := overClusters(r, way.client, way.decorator, clusters)
		if err != nil {
			return err
		}
		n := len(clusterSizes)
		all.add(name, figures[:n])
		each.add(name, append(figures[n:], figures[n-1])) // the largest cluster is in both
	}
	data["Rest"], data["InAll"], data["ForEach"], data["ClusterSubjects"] = rest, inAll, forEach, clusterSubjects
	data["Primaries"], data["PrimarySlopes"] = all.times, all.slopes.Table
	data["BusyPrimaries"], data["BusyPrimarySlopes"] = each.times, each.slopes.Table
	return nil
}

// clusterTables has what several stores take, against the primaries.
type clusterTables struct {
	times  report.Table
	slopes report.Slopes
}

func newClusterTables(load string) clusterTables {
	return clusterTables{
		report.NewTable("store, primaries"+load, "Redis µs a decision", "client µs a decision", "both", "decisions/s"),
		report.NewSlopes("primaries"+load, clusterSizes, ""),
	}
}

func (t clusterTables) add(store string, figures []load.Figures) {
	for i, n := range clusterSizes {
		f := figures[i]
		t.times.Row(fmt.Sprintf("%s, %d", store, n), f.Used[primariesTime], f.Used[callerTime], f.Used[bothTimes], f.PerSecond)
	}
	t.slopes.Row(store+": Redis", load.Used(figures, primariesTime))
	t.slopes.Row(store+": client", load.Used(figures, callerTime))
	t.slopes.Row(store+": both", load.Used(figures, bothTimes))
}

// overClusters measures one store on every cluster at the same rate in all, and then on all but the largest at the same
// rate for each primary.
func overClusters(r *report.Report, client, decorator string, clusters []*redistest.Cluster) ([]load.Figures, error) {
	var runs []load.Run
	for _, c := range clusters {
		plain, done, err := openCluster(client, c.Addrs())
		if err != nil {
			return nil, err
		}
		defer done()
		decide, err := onSubjects(decorator, plain, clusterSubjects)
		if err != nil {
			return nil, err
		}
		redis, caller := processorOf(c), load.Processor(os.Getpid())
		runs = append(runs, load.Run{Decide: decide, Goroutines: many, Rate: inAll, Duration: r.Turn,
			Meters: []load.Meter{redis, caller, load.Sum(redis, caller)}})
	}
	for i, n := range clusterSizes[:len(clusterSizes)-1] {
		run := runs[i]
		run.Rate = float64(forEach * n)
		runs = append(runs, run)
	}
	return load.Alternate(r.ClientRounds, func(round int) []load.Run {
		for i := range runs {
			runs[i].Keys = load.Keys(clusterSubjects, 0, uint64(round))
		}
		return runs
	})
}

// onSubjects returns the decision of a store on subjects that have made a call each.
func onSubjects(decorator string, plain driver.Store, n int) (load.Decide, error) {
	store, err := decorate(decorator, plain, quota{})
	if err != nil {
		return nil, err
	}
	limiter, err := sash.New(store, nil, sash.PerHour(5000))
	if err != nil {
		return nil, err
	}
	decide := load.Admitting(func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	})
	_, err = (&opened{decide: decide}).spread(n, n)
	return decide, err
}

// openCluster is openStore for a cluster.
func openCluster(client string, addrs []string) (driver.Store, func(), error) {
	if client == goRedis {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, MaxRetries: -1})
		return goredisstore.New(c, nil), func() { _ = c.Close() }, nil
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	return rueidisstore.New(c, nil), c.Close, nil
}

// processorOf is a meter of all primaries.
func processorOf(c *redistest.Cluster) load.Meter {
	var meters []load.Meter
	for _, s := range c.Primaries {
		meters = append(meters, load.Processor(s.Pid()))
	}
	return load.Sum(meters...)
}
