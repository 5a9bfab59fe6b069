package goredisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostTogether is the most commands of one round trip. It bounds how long they keep a server busy while others wait.
const mostTogether = 256

// A server receives commands: each by itself while the client's pool has connections for them, and otherwise in a pipeline with
// other commands that wait. So a pool of any size carries any number of calls to a server far away.
type server struct {
	client redis.UniversalClient
	most   int // connections

	mu      sync.Mutex
	trips   int        // round trips under way; guarded by mu, as waiting
	waiting []*waiting // commands without a connection
}

// A waiting command goes with a pipeline, which may take longer than its caller stays.
type waiting struct {
	ctx  context.Context
	cmd  once
	done chan struct{}
}

// to returns the processor that sends a script to the server of its keys.
func (s *scripter) to(ctx context.Context, keys []string) processor {
	node, err := s.node(ctx, keys)
	if err != nil { // sending the script says why
		return s.client
	}
	addr := node.Options().Addr
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers[addr] == nil {
		s.servers[addr] = &server{client: s.client, most: node.Options().PoolSize}
	}
	return s.servers[addr]
}

// Process implements processor.
func (s *server) Process(ctx context.Context, cmd redis.Cmder) error {
	s.mu.Lock()
	if s.trips < s.most {
		s.trips++
		s.mu.Unlock()
		defer s.arrived()
		return s.client.Process(ctx, cmd)
	}
	w := &waiting{ctx, once{redis.NewCmd(ctx, cmd.Args()...)}, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.done:
		cmd.(once).SetVal(w.cmd.Val())
		cmd.SetErr(w.cmd.Err())
	case <-ctx.Done():
		cmd.SetErr(ctx.Err())
	}
	return cmd.Err()
}

// arrived ends a round trip. Commands that wait make the next one.
func (s *server) arrived() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), mostTogether)
	if n == 0 {
		s.trips--
		return
	}
	go s.send(s.waiting[:n:n])
	s.waiting = s.waiting[n:]
}

// send sends commands whose callers have stayed, and waits for as long as the last of them.
func (s *server) send(together []*waiting) {
	defer s.arrived()
	ctx, pipe, last := context.WithoutCancel(together[0].ctx), s.client.Pipeline(), time.Time{}
	for _, w := range together {
		if w.ctx.Err() != nil {
			continue
		}
		_ = pipe.Process(ctx, w.cmd)
		deadline, ends := w.ctx.Deadline()
		if !ends { // only the client's timeouts end the round trip
			deadline = time.Now().Add(time.Hour)
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	ctx, cancel := context.WithDeadline(ctx, last)
	defer cancel()
	_, _ = pipe.Exec(ctx) // each command has an error of its own
	for _, w := range together {
		close(w.done)
	}
}
