package regionbench

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Caller is the first argument of a program that is to be a calling process: it then calls [Call].
const Caller = "region-caller"

// outstanding is the most calls of a process that wait for an answer. Further ones are not made, and counted.
const outstanding = 10_000

// A result is what a calling process did.
type result struct {
	Records []record
	Errors  map[string]int // what failed calls returned
	Unmade  int            // calls that were due when too many others waited
}

// Call is a calling process. It reads its plan from in, opens its deciders, reports that it is ready, reads the instant
// at which it begins, makes the calls and writes what came of them. It ends early when its parent does.
func Call(in io.Reader, out io.Writer) error {
	from, to := gob.NewDecoder(in), gob.NewEncoder(out)
	var p plan
	if err := from.Decode(&p); err != nil {
		return fmt.Errorf("regionbench: reading the plan: %w", err)
	}
	deciders := make([]decide, len(p.Deciders))
	for i, d := range p.Deciders {
		decide, done, err := d.open()
		if err != nil {
			return err
		}
		defer done()
		deciders[i] = decide
	}
	if err := to.Encode("ready"); err != nil {
		return err
	}
	var begin time.Time
	if err := from.Decode(&begin); err != nil {
		return err
	}
	go func() {
		var end string
		if from.Decode(&end) != nil { // the parent has ended
			os.Exit(1)
		}
	}()
	return to.Encode(p.run(deciders, begin))
}

// run makes the calls.
func (p *plan) run(deciders []decide, begin time.Time) result {
	begin = time.Now().Add(time.Until(begin)) // with a monotonic reading: begin was sent without one
	c := &calling{plan: p, begin: begin, places: make(chan struct{}, outstanding)}
	c.result.Errors = make(map[string]int)
	var streams sync.WaitGroup
	for i := range p.Streams {
		streams.Go(func() { c.stream(i, deciders[p.Streams[i].Decider]) })
	}
	streams.Wait()
	c.group.Wait()
	return c.result
}

// calling is the calls of a process.
type calling struct {
	plan   *plan
	begin  time.Time
	places chan struct{}
	group  sync.WaitGroup

	mu     sync.Mutex
	result result // guarded by mu
}

func (c *calling) stream(i int, decide decide) {
	s := &c.plan.Streams[i]
	for call := range s.calls(c.plan.Seed<<16 + uint64(i)) {
		due := c.begin.Add(call.after)
		time.Sleep(time.Until(due))
		select {
		case c.places <- struct{}{}:
		default:
			c.mu.Lock()
			c.result.Unmade++
			c.mu.Unlock()
			continue
		}
		c.group.Go(func() {
			defer func() { <-c.places }()
			c.call(i, decide, call, due)
		})
	}
}

func (c *calling) call(stream int, decide decide, call planned, due time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), c.plan.Patience)
	defer cancel()
	r := record{Stream: stream, Subject: call.subject, Cost: call.cost, Due: due.UnixNano()}
	sent := time.Now()
	ans, err := decide(ctx, fmt.Sprintf("subject:%d", call.subject), call.cost)
	r.Sent, r.Done = sent.UnixNano(), sent.UnixNano()+int64(time.Since(sent))
	r.At, r.Leased = ans.at, ans.leased
	switch {
	case err != nil:
		r.Outcome = failed
	case ans.admitted:
		r.Outcome = admitted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Records = append(c.result.Records, r)
	if err != nil && (len(c.result.Errors) < 100 || c.result.Errors[err.Error()] > 0) {
		c.result.Errors[err.Error()]++
	}
}

// A process is a calling process, as its parent has it.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	to   *gob.Encoder
	from *gob.Decoder
}

// begin starts this program as a calling process, and waits until it is ready.
func (p *plan) begin() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &process{cmd: exec.Command(self, Caller)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.to, c.from = gob.NewEncoder(c.in), gob.NewDecoder(out)
	var ready string
	if err = c.to.Encode(p); err == nil {
		err = c.from.Decode(&ready)
	}
	if err != nil {
		c.end()
		return nil, fmt.Errorf("regionbench: a calling process did not start: %w", err)
	}
	return c, nil
}

// result waits until the process has made its calls.
func (c *process) result() (r result, err error) {
	if err := c.from.Decode(&r); err != nil {
		return r, fmt.Errorf("regionbench: a calling process ended early: %w", err)
	}
	return r, nil
}

// end ends the process.
func (c *process) end() {
	_ = c.cmd.Process.Kill() // it may have ended
	c.in.Close()
	_ = c.cmd.Wait()
}
