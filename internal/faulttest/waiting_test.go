package faulttest

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// What every test of waiters has: about 800 callers in a queue of two to three seconds.
var (
	waitersLimits = []sash.Limit{sash.Every(50, 100*time.Millisecond), sash.Every(1300, 3*time.Second)}
	waitersJobs   = waitersJob{Waiters: 200, Limits: waitersLimits, HighCost: 50}
)

// times is how much longer than in make test waiters go on.
var times = flag.Int64("times", 1, "how many times as many bookings waiters make")

// on returns the job on one server.
func (j waitersJob) on(server *redistest.Server) waitersJob {
	j.Addrs = []string{server.Addr()}
	return j
}

// decisions returns how many scripts a server has run. (An EVALSHA of a script that it does not have has run none.)
func decisions(t testing.TB, server *redistest.Server) (n int64) {
	t.Helper()
	for line := range strings.Lines(server.Must(t, "INFO", "commandstats").(string)) {
		name, stats, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		for field := range strings.SplitSeq(stats, ",") {
			var v int64
			if _, err := fmt.Sscanf(field, "calls=%d", &v); err == nil {
				n += v
			} else if _, err := fmt.Sscanf(field, "failed_calls=%d", &v); err == nil {
				n -= v
			}
		}
	}
	return n
}

// Four processes with 200 waiters each: all start in order, no window holds more than the limit, no caller starts later than
// necessary, and each takes one decision. One waiter in a hundred costs a whole window.
func TestWaitersOfFourProcesses(t *testing.T) {
	server := redistest.Start(t)
	f := startFleet(t, 4, waitersJobs.on(server))
	more(t, "bookings", &f.answers, 1500**times)
	all := f.endInOrder(t)
	if err := all.due(waitersLimits...); err != nil {
		t.Error(err)
	}
	if n := decisions(t, server); n != int64(len(all)) {
		t.Errorf("%d decisions for %d admissions", n, len(all))
	}
}

// The server's clock jumps forward by an hour, and back again, while all callers wait. They wait in real time, so none starts
// before its place. Forward, what was charged before no longer counts; back, bookings move with the clock, so order and bound go on.
func TestWaitersWhenTheClockJumps(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	f := startFleet(t, 4, waitersJobs.on(server))
	more(t, "bookings before the jump", &f.answers, 750**times)
	clock.Move(t, time.Hour)
	more(t, "bookings after the jump", &f.answers, 750**times)
	back := micros(time.Now())
	clock.Move(t, 0)
	more(t, "bookings after the way back", &f.answers, 750**times)
	var before, ahead, after bookings // with the places that they got, for two callers may have exchanged theirs since, even over both jumps
	all := f.end()
	for _, b := range all {
		switch b.At = b.Place; {
		case b.Came-b.Answered > (30 * time.Minute).Microseconds():
			b.At -= time.Hour.Microseconds()
			ahead = append(ahead, b)
		case b.Came > back:
			after = append(after, b)
		default:
			before = append(before, b)
		}
	}
	if len(before) < 100 || len(ahead) < 100 || len(after) < 100 { // answers are read late on a busy machine
		t.Fatalf("%d bookings before, %d ahead, and %d after", len(before), len(ahead), len(after))
	}
	for _, part := range []bookings{before, append(ahead, after...)} {
		part.isInOrder(t)
		part.keepsTo(t, 1, waitersLimits...)
	}
	for i := range all {
		if all[i].At-all[i].Started > (30 * time.Minute).Microseconds() {
			all[i].At -= time.Hour.Microseconds()
		}
	}
	all.keepsTo(t, 2, waitersLimits...)
	for _, b := range all {
		if b.Started < b.At {
			t.Fatalf("a caller starts before its place: %+v", b)
		}
	}
	all.allStarted(t)
}

// endInOrder ends a fleet whose callers all start, in order and within the limits.
func (f *fleet) endInOrder(t *testing.T) bookings {
	t.Helper()
	all := f.end()
	all.isInOrder(t)
	all.keepsTo(t, 1, waitersLimits...)
	all.allStarted(t)
	return all
}

// allStarted reports callers who did not start, and logs what was seen.
func (all bookings) allStarted(t *testing.T) {
	t.Helper()
	if n := len(all.started()); n != len(all) {
		t.Errorf("%d of %d bookings started", n, len(all))
	}
	all.log(t)
}

// startQueue starts processes of waiters, and returns them when they have made some bookings and a third of all callers wait.
// A machine that is too busy to use up the limits has no queue. Then the windows are longer.
func startQueue(t *testing.T, processes int, bookings int64) (*fleet, *redistest.Server, []sash.Limit) {
	t.Helper()
	for j := waitersJobs; ; {
		server := redistest.Start(t)
		f := startFleet(t, processes, j.on(server))
		more(t, "bookings", &f.answers, bookings)
		if 3*f.waiting(0) >= processes*j.Waiters {
			return f, server, j.Limits
		}
		for p := range processes {
			f.kill(t, p)
		}
		f.group.Wait()
		j.Limits = slices.Clone(j.Limits)
		for i := range j.Limits {
			j.Limits[i].Window *= 2
		}
		t.Logf("the machine is busy, and the limits are %v", j.Limits)
	}
}

// A third of the waiters leave, and a third of those that stay are killed with their processes. The others keep their
// places or move up, in the order of their process. The store has a second to bring a place forward: where the machine is so
// late that it takes longer, a caller gets an error and others may overtake, and the waiters come again.
func TestWaitersLeaveAndAreKilled(t *testing.T) {
	for attempt := 1; ; attempt++ {
		late, failed := leaveAndAreKilled(t)
		if failed == nil {
			return
		}
		t.Logf("where callers start up to %v late: %v", late, failed)
		if late < time.Second/4 || attempt == 5 {
			t.Fatal("the machine is not why")
		}
	}
}

// leaveAndAreKilled returns an error if a caller who stays is overtaken or does not start, and how late callers start.
func leaveAndAreKilled(t *testing.T) (late time.Duration, failed error) {
	t.Helper()
	f, server, limits := startQueue(t, 6, 750**times)
	f.leave(t)
	more(t, "bookings after a third left", &f.answers, 500)
	await(t, "waiters to kill", func() bool { return f.waiting(4) >= 150 })
	f.kill(t, 4)
	f.kill(t, 5)
	more(t, "bookings after a third was killed", &f.answers, 400**times)
	all := f.end()

	left := all.where(func(b booking) bool { return b.Left })
	unused := all.where(func(b booking) bool { return b.Process >= 4 && b.At > 0 && b.Started == 0 && !b.Left })
	if len(left) < 100 || len(unused) < 100 {
		t.Fatalf("%d left and %d were killed while they waited", len(left), len(unused))
	}
	all.started().keepsTo(t, 1, limits...)
	for _, b := range all.started() {
		if b.Started < b.At {
			t.Fatalf("a caller started before its place: %+v", b)
		}
	}
	// One decision each, one settlement for each that left, and as units come back those who wait ask to start earlier: two
	// decisions for each booking in all. Not known are the calls whose answer died with a process, what is still given
	// back for callers who left while the store decided, and what took a second to give back.
	n, answered, gone := decisions(t, server), len(all.answered())+len(left.answered()), len(left)-len(left.answered())
	doubtful := len(left.where(func(b booking) bool { return b.Doubtful }))
	if n < int64(answered-doubtful) || n > int64(2*len(all)+2*200) {
		t.Errorf("%d scripts for %d bookings and %d that left, %d of them without an answer and %d in doubt", n, len(all), len(left), gone, doubtful)
	}
	all.log(t)
	for p := range 6 {
		for _, cost := range []int64{1, waitersJobs.HighCost} {
			queue := all.started().where(func(b booking) bool { return b.Process == p && b.Cost == cost })
			failed = cmp.Or(failed, queue.startInOrder())
		}
	}
	for _, b := range all {
		if b.Process < 4 && !b.Left && (b.Started == 0 || b.Failed != "") {
			failed = cmp.Or(failed, fmt.Errorf("a caller who stayed did not start: %+v", b))
		}
	}
	return all.late(), failed
}

// The primary is killed and a replica takes over. Places that it knows are kept; a window holds at most twice its limit,
// as after any loss of charges.
func TestWaitersThroughAFailover(t *testing.T) {
	primary := redistest.Start(t)
	redistest.StartReplica(t, primary.Addr())
	sentinels := redistest.StartSentinels(t, primary, 1, time.Second)
	j := waitersJobs
	j.Addrs, j.Sentinel = sentinels.Addrs(), sentinels.Name
	f := startFleet(t, 4, j)
	more(t, "bookings before the fault", &f.answers, 750**times)
	killed := micros(time.Now())
	primary.Stop()
	await(t, "a sentinel names another primary", func() bool { return sentinels.Primary(t) != primary.Addr() })
	more(t, "bookings after the fault", &f.answers, 750**times)
	all := f.end().answered()

	all.keepsTo(t, 2, waitersLimits...)
	all.allStarted(t)
	for i := range all {
		all[i].At = all[i].Place
	}
	before := all.where(func(b booking) bool { return b.Answered <= killed })
	after := all.where(func(b booking) bool { return b.Asked > killed })
	for _, half := range []bookings{before, after} {
		half.isInOrder(t)
		half.keepsTo(t, 1, waitersLimits...)
	}
	t.Logf("%d of %d places that were given before the failover were not known after it", len(all.inversions()), len(before))
}
