package redisbench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/bench/instructions"
	"example.com/sash/internal/bench/report"
	"example.com/sash/redisstore"
)

// A count is a contender under a load, whose instructions are counted.
type count struct {
	contender
	load
	calls    int
	subjects int // of a call
}

func (c count) name() string {
	return fmt.Sprintf("%s: cost %d, %s", c.contender.name, c.cost, c.load.name)
}

//go:embed instructions.md
var instructionsPage string

// Counted returns the names of the rows of [Instructions].
func Counted() []string {
	names := []string{empty().name}
	for _, c := range counts() {
		names = append(names, c.name())
	}
	return names
}

// Instructions counts the instructions of decisions on a server, and adds them to the report.
func Instructions(r *report.Report) error {
	s, err := instructions.StartServer(".")
	if err != nil {
		return err
	}
	defer s.Stop()
	r.Redis = s.Version
	table := instructions.NewTable("above the empty script", ": sorted set by hand")
	r.Say("instructions: empty script")
	none, err := count{empty(), withRoom(0), 1000, 1}.measure(s)
	if err != nil {
		return err
	}
	table.Row(empty().name, fmt.Sprintf("%.0f", none), "-", "-")
	hands := map[string]float64{}
	for _, c := range counts() {
		r.Say("instructions: %s", c.name())
		n, err := c.measure(s)
		if err != nil {
			return err
		}
		above, ratio := n-none*float64(len(c.contender.calls(c.jobs(time.Second)[0])))/float64(c.subjects), "-"
		key := fmt.Sprint(c.cost, c.load.name)
		if c.contender.name == sortedSet().name {
			hands[key] = n
		} else if hand, ok := hands[key]; ok {
			ratio = fmt.Sprintf("%.2f", n/hand)
		}
		table.Row(c.name(), fmt.Sprintf("%.0f", n), fmt.Sprintf("%.0f", above), ratio)
	}
	return r.Add(instructionsPage, map[string]any{"Counts": table})
}

// counts are what is counted, but for the empty script.
func counts() []count {
	l := contenders()
	var all []count
	for _, of := range []struct {
		load  load
		calls int
	}{
		{withRoom(1), 1000}, {fresh(1000), 1000}, {leaving(300, 1), 1000}, {refused(1), 1000},
		{twoWithRoom(), 1000}, {twoLeaving(300, 1000), 500}, {withRoom(100), 500},
	} {
		all = append(all, count{l.hand, of.load, of.calls, 1}, count{l.compact, of.load, of.calls, 1})
	}
	for _, other := range l.others {
		all = append(all, count{other, withRoom(1), 1000, 1})
	}
	for _, p := range l.pairs() {
		all = append(all, count{p.leanest, withRoom(1), 1000, 1}, count{p.ours, refused(1), 1000, 1}, count{p.leanest, refused(1), 1000, 1})
	}
	all = append(all, count{l.compact, manyKeys(64), 1280, 1})
	for _, n := range []int{1, 4, 16} {
		all = append(all, count{together(n), manyKeys(64 / n), 1280 / n, n})
	}
	return all
}

// manyKeys has room on keys of which each has had twenty calls.
func manyKeys(keys int) load {
	l := withRoom(1)
	l.keys, l.fill = keys, 20*keys
	l.name = "64 keys with room"
	return l
}

// together decides for n subjects in one call, as coalesce does.
func together(n int) contender {
	decide := func(j job, server redisstore.Scripter) ([]driver.Answer, []error) {
		policy, err := sash.NewPolicy(nil, j.limits...)
		if err != nil {
			panic(fmt.Sprintf("redisbench: together: %v", err))
		}
		reqs := make([]driver.Request, n)
		for i := range reqs {
			reqs[i] = driver.Request{Key: fmt.Sprintf("%s:%d", j.key, i), Cost: j.cost, Policy: policy}
		}
		return redisstore.New(server, nil).DecideMany(context.Background(), reqs)
	}
	return contender{
		name: fmt.Sprintf("compact log, %d in a call", n),
		calls: func(j job) []call {
			var rec recorder
			decide(j, &rec)
			return []call{rec.call}
		},
		read: func(j job, reply any) (bool, int64, error) {
			text, _ := reply.(string)
			answers, errs := decide(j, &recorder{reply: text})
			if err := errors.Join(errs...); err != nil {
				return false, 0, err
			}
			allowed := true
			for i := range answers {
				allowed = allowed && answers[i].Allowed()
			}
			return allowed, answers[0].Remaining(), nil
		},
	}
}

// measure returns the instructions of one decision.
func (c count) measure(s *instructions.Server) (float64, error) {
	if err := s.Flush(); err != nil {
		return 0, err
	}
	step := time.Millisecond
	if c.spans != nil {
		step = time.Second // far longer than a decision takes, so that exactly one leaves as one comes
	}
	jobs := c.jobs(step)
	if err := c.decide(s, jobs, c.fill, step, true); err != nil {
		return 0, err
	}
	if _, err := s.Count(); err != nil {
		return 0, err
	}
	if err := c.decide(s, jobs, c.calls, step, !strings.HasPrefix(c.load.name, "refused")); err != nil {
		return 0, err
	}
	n, err := s.Count()
	return n / float64(c.calls*c.subjects), err
}

// decide makes n decisions, the jobs in turn, each at an instant of its own.
func (c count) decide(s *instructions.Server, jobs []job, n int, step time.Duration, admits bool) error {
	ctx := context.Background()
	calls := make([][]call, len(jobs))
	for i, j := range jobs {
		calls[i] = c.contender.calls(j)
	}
	for _, call := range calls[0] {
		if err := s.ScriptLoad(ctx, call.script.Text).Err(); err != nil {
			return err
		}
	}
	for i := range n {
		if err := s.Tick(step); err != nil {
			return err
		}
		pipe := s.Pipeline()
		for _, call := range calls[i%len(jobs)] {
			pipe.EvalSha(ctx, call.script.SHA1, call.keys, call.args()...)
		}
		replies, err := pipe.Exec(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		for _, reply := range replies {
			allowed, _, err := c.read(jobs[i%len(jobs)], reply.(*redis.Cmd).Val())
			if err != nil || allowed != admits {
				return fmt.Errorf("redisbench: %s: decision %d was admitted: %t, %v", c.name(), i, allowed, err)
			}
		}
	}
	return nil
}
