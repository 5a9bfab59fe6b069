package rivals

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// A hello is the first line of a program.
type hello struct {
	Runtime    string  `json:"runtime"`
	Contenders []named `json:"contenders"`
}

// A named is a contender of a program.
type named struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// A request is an operation of the protocol.
type request struct {
	Op        string `json:"op"`
	Contender string `json:"contender"`
	Units     int64  `json:"units"`
	WindowMS  int64  `json:"window_ms"`

	Key string `json:"key,omitempty"` // of an ask

	Prefix  string `json:"prefix,omitempty"` // this and the following of a load
	Keys    int    `json:"keys,omitempty"`
	Callers int    `json:"callers,omitempty"`
	ForMS   int64  `json:"for_ms,omitempty"`
}

// An answer is that of an ask or of a load, or says why there is none.
type answer struct {
	Error   string `json:"error,omitempty"`
	Allowed *bool  `json:"allowed,omitempty"`

	Decisions int64   `json:"decisions,omitempty"`
	Admitted  int64   `json:"admitted,omitempty"`
	Errors    int64   `json:"errors,omitempty"`
	MS        float64 `json:"ms,omitempty"`
	P50       float64 `json:"p50_us,omitempty"`
	P99       float64 `json:"p99_us,omitempty"`
}

// errBroken is wrapped where a program has broken the protocol, so that none of its contenders can go on.
var errBroken = errors.New("the program has ended")

const (
	startTime   = time.Minute      // the longest that a program takes to start
	answerTime  = 30 * time.Second // and to answer, beside the time for which it decides
	endTime     = 2 * time.Second  // and to end
	longestLine = 1 << 16
)

// A child is a running program. It answers one request at a time; concurrent calls wait for one another.
type child struct {
	hello hello

	mu     sync.Mutex // guards everything below, but for ending the process
	cmd    *exec.Cmd
	in     io.WriteCloser
	pipe   io.ReadCloser
	out    *bufio.Reader
	broken error
	ended  func() error // waits for the process, once
}

// startChild starts a program and reads what it is. The caller ends it.
func startChild(ctx context.Context, cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd}
	var errIn, errOut error
	c.in, errIn = cmd.StdinPipe()
	c.pipe, errOut = cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return nil, err
	}
	c.ended = sync.OnceValue(cmd.Wait)
	c.out = bufio.NewReaderSize(c.pipe, longestLine)
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err := c.exchange(ctx, nil, &c.hello)
	if err == nil && len(c.hello.Contenders) == 0 {
		err = c.breaks(errors.New("it has no contenders"))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// call sends a request and returns the answer. An error that wraps errBroken is the program's last.
func (c *child) call(ctx context.Context, r request) (answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return answer{}, c.broken
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime+time.Duration(r.ForMS)*time.Millisecond)
	defer cancel()
	var a answer
	if err := c.exchange(ctx, r, &a); err != nil {
		return answer{}, err
	}
	if a.Error != "" {
		return answer{}, errors.New(a.Error)
	}
	if r.Op == "ask" && a.Allowed == nil || r.Op == "load" && (a.Decisions+a.Errors <= 0 || a.MS <= 0) {
		return answer{}, c.breaks(fmt.Errorf("its answer to %q lacks fields", r.Op))
	}
	return a, nil
}

// exchange sends a value, unless it is nil, and reads a line. It ends the program if that fails or takes too long.
func (c *child) exchange(ctx context.Context, send, receive any) error {
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	if send != nil {
		if err := json.NewEncoder(c.in).Encode(send); err != nil {
			return c.breaks(why(ctx, err))
		}
	}
	line, err := c.out.ReadSlice('\n')
	if err != nil {
		return c.breaks(why(ctx, err))
	}
	if err := json.Unmarshal(line, receive); err != nil {
		return c.breaks(fmt.Errorf("it wrote %.80q: %w", line, err))
	}
	return nil
}

// why returns the reason of a failure of the pipes.
func why(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("it did not answer: %w", ctx.Err())
	case errors.Is(err, bufio.ErrBufferFull):
		return fmt.Errorf("it wrote a line of more than %d bytes", longestLine)
	}
	return fmt.Errorf("its pipe: %w", err)
}

// breaks ends the program because of an error, and returns the error of this and all later calls.
func (c *child) breaks(err error) error {
	c.end()
	c.broken = fmt.Errorf("%w: %w (%v)", errBroken, err, c.cmd.ProcessState)
	return c.broken
}

// end closes the program's input, and kills it if it does not end then.
func (c *child) end() {
	_ = c.in.Close() // fails if it has ended
	timer := time.AfterFunc(endTime, c.kill)
	defer timer.Stop()
	_ = c.ended() // cmd.ProcessState says how
}

// kill ends the process, and the reading of its output even if a process of its own still holds that.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails if it has ended
	_ = c.pipe.Close()
}
