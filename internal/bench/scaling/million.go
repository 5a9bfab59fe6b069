package scaling

import (
	"fmt"
	"strings"
)

// The deployment that is computed, and what is assumed of it.
const (
	decisions  = 1_000_000  // a second
	subjects   = 10_000_000 // with calls in their windows
	calls      = 20         // of a subject in its window, beside the first
	callBytes  = (leastCallBytes + mostCallBytes) / 2
	busy       = 0.6 // how busy primaries and instances are
	processors = 8   // of a machine with an instance
	kilobyte   = 0.5 // of a decision on the network, each way
)

// A million is the arithmetic of a million decisions a second.
type million struct {
	measured
	primaries, instances amount
	redis, service       []effect // what changes the time of a decision
	// µs of a decision. With a million a second these are also the processors that are busy.
	redisEach, serviceEach amount
}

// An effect is what the size of the deployment does to the time of a decision.
type effect struct {
	of             string
	here, measured float64 // the size, and the largest that was measured
	slope          string  // of a doubling
	doublings      float64 // from where the slope begins to here
	changes        string
}

// compute finds the primaries and instances: the time of a decision depends on them, and they depend on it.
func (m measured) compute() (d million) {
	d = million{measured: m, primaries: exactly(mostPrimaries), instances: exactly(mostInstances)}
	for range 20 {
		was := d
		d.ofRedis()
		d.ofService()
		d.primaries = d.redisEach.times(exactly(1 / busy)).up()
		d.instances = d.serviceEach.times(exactly(1 / busy / processors)).up()
		if d.primaries == was.primaries && d.instances == was.instances {
			break
		}
	}
	return d
}

// ofRedis computes the time of Redis.
func (d *million) ofRedis() {
	primaries, instances := d.primaries.value, d.instances.value
	d.redisEach, d.redis = d.redisBusy, []effect{
		busiest("the calls a second on one Redis", decisions/primaries, d.redisCalls.value, d.redisByCalls, d.redisBusy)}
	for _, by := range []struct {
		of                   string
		here, measured, from float64
		slope                amount
	}{
		{"the primaries, each with the same load", primaries, mostPrimaries, 1, d.redisByPrimaries},
		{"the instances, with the same load in all", instances, mostInstances, 1, d.redisByInstances},
		{"the subjects of one Redis", subjects / primaries, mostSubjects, busySubjects, d.redisBySubjects},
	} {
		n := doublings(by.from, by.here)
		factor := by.slope.after(n)
		d.redis = append(d.redis, effect{by.of, by.here, by.measured, by.slope.percent(), n, "× " + factor.String()})
		d.redisEach = d.redisEach.times(factor)
	}
}

// ofService computes the time of an instance.
func (d *million) ofService() {
	primaries, instances := d.primaries.value, d.instances.value
	toInstances, toPrimaries := doublings(1, instances), doublings(1, primaries)
	factor, more := d.serviceByInstances.after(toInstances), d.clientByPrimaries.rising().times(exactly(toPrimaries))
	d.service = []effect{
		busiest("the calls a second on one instance", decisions/instances, d.serviceCalls.value, d.serviceByCalls, d.serviceBusy),
		{"the instances, each with the same load", instances, mostInstances, d.serviceByInstances.percent(), toInstances, "× " + factor.String()},
		{"the primaries, with the same load in all: the client", primaries, mostPrimaries, signed(d.clientByPrimaries), toPrimaries, "+ " + more.String() + " µs"},
	}
	d.serviceEach = d.serviceBusy.times(factor).plus(more)
}

// busiest is the time at the most calls that were measured. That more calls take less time each is not counted.
func busiest(of string, here, measured float64, slope, time amount) effect {
	return effect{of, here, measured, slope.percent() + ", not counted", 0, time.String() + " µs"}
}

// A rows is the text of a table of Markdown.
type rows struct{ strings.Builder }

func (r *rows) add(cells ...string) { fmt.Fprintf(r, "| %s |\n", strings.Join(cells, " | ")) }

// effects is a table of effects, of the time that they come to, and of how many primaries or instances that takes.
func effects(all []effect, each amount, what string, count amount) string {
	var r rows
	r.add("", "here", "measured up to", "a doubling", "doublings", "time of a decision")
	r.add("---", "---:", "---:", "---:", "---:", "---:")
	for _, e := range all {
		n := number(e.doublings)
		if e.doublings == 0 {
			n = ""
		}
		r.add(e.of, thousands(e.here), thousands(e.measured), e.slope, n, e.changes)
	}
	last := func(what string, result any) { r.add(what, "", "", "", "", fmt.Sprint(result)) }
	last("in all", each.String()+" µs")
	last(fmt.Sprintf("processors that %s a second keep busy", thousands(decisions)), each)
	last(fmt.Sprintf("**%s, %v %% busy**", what, 100*busy), fmt.Sprintf("**%v**", count))
	return r.String()
}

// rest is what lies between primaries and instances, the memory, and what larger decisions add.
func (d million) rest() string {
	primaries, instances := d.primaries.value, d.instances.value
	var r rows
	r.add("", "")
	r.add("---", "---")
	r.add("Redis servers with a replica of each primary", fmt.Sprintf("2 × %s = %s", number(primaries), number(2*primaries)))
	r.add("connections to Redis", fmt.Sprintf("%s instances × %s primaries = %s", number(instances), number(primaries), thousands(instances*primaries)))
	r.add("network at an instance", fmt.Sprintf("%[1]s decisions a second × (%[2]v + %[2]v) kB = %[3]s Mbit/s", thousands(decisions/instances), kilobyte,
		thousands(decisions/instances*kilobyte*2*8/1000)))
	bytes := subjects * (d.redisBytes + calls*callBytes)
	r.add("memory of Redis", fmt.Sprintf("%s subjects × (%s + %d × %d) bytes = %s GB, %s GB a primary", thousands(subjects), number(d.redisBytes), calls,
		callBytes, number(bytes/1e9), number(bytes/1e9/primaries)))
	for _, more := range []struct {
		what string
		each amount
	}{{"one more key in every decision, in the same slot", d.redisByKeys}, {"one more limit of every subject", d.redisByLimits}} {
		r.add(more.what, fmt.Sprintf("%s of Redis: %v more primaries", signed(more.each), more.each.times(exactly(1/busy)).up()))
	}
	return r.String()
}

// signed is a slope in µs.
func signed(a amount) string { return fmt.Sprintf("%+.3f ± %.3f µs", a.value, a.high-a.value) }
