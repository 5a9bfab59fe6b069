package servicebench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"example.com/sash/internal/bench/load"
)

// rules has a limit that no client reaches, one that all calls of one subject do not reach, and one that is soon used up.
// Envoy's own service reads them, too.
const rules = `domain: bench
descriptors:
  - {key: client, rate_limit: {unit: minute, requests_per_unit: 10000}}
  - {key: hot, rate_limit: {unit: minute, requests_per_unit: 100000000}}
  - {key: small, rate_limit: {unit: hour, requests_per_unit: 10}}
`

// rulesBelow is where the rules are in the directory of the binary: where Envoy's own service looks for them.
const rulesBelow = "ratelimit/config"

// Build builds the command that users run, in a directory, and writes rules beside it, of the domain bench.
func Build(ctx context.Context, dir, rules string) (binary string, err error) {
	binary = filepath.Join(dir, "sash")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "example.com/sash/service/cmd/sash")
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, time.Second // it ends its compilers
	if out, err := cmd.CombinedOutput(); ctx.Err() != nil {
		return "", context.Cause(ctx)
	} else if err != nil {
		return "", fmt.Errorf("servicebench: building sash: %w\n%s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(dir, rulesBelow), 0o700); err != nil {
		return "", err
	}
	return binary, os.WriteFile(filepath.Join(dir, rulesBelow, "rules.yaml"), []byte(rules), 0o600)
}

// A Service is a running sash serve, or Envoy's own service. The addresses are those of loopback that it listens on.
type Service struct {
	URL, GRPC, RESP string

	name  string
	cmd   *exec.Cmd
	ended chan error
}

// serve starts the service on Redis, or on its own memory if the address is empty. A service that yields runs after
// everything else.
func serve(binary, redis string, yields bool) (*Service, error) {
	var args []string
	if redis != "" {
		args = []string{"--redis", "redis://" + redis}
	}
	if yields {
		return start(binary, []string{"nice", "-n", niceness}, args)
	}
	return start(binary, nil, args)
}

// Start starts sash serve with the rules beside the binary, on free ports and with more arguments. The caller stops it.
func Start(binary string, args ...string) (*Service, error) { return start(binary, nil, args) }

// start starts the service through another command, if there is one.
func start(binary string, through, more []string) (*Service, error) {
	args := slices.Concat(through, []string{binary, "serve", "--json", "--config", filepath.Join(filepath.Dir(binary), rulesBelow),
		"--log-level", "error", "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--resp-addr", "127.0.0.1:0",
		"--admin-addr", "127.0.0.1:0"}, more)
	s := &Service{name: "sash serve", cmd: exec.Command(args[0], args[1:]...), ended: make(chan error, 1)}
	s.cmd.Env, s.cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	go func() { s.ended <- s.cmd.Wait() }()
	if err == nil {
		err = json.Unmarshal(line, s)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("servicebench: sash serve did not start: %w", err), s.Stop())
	}
	return s, nil
}

// Stop interrupts the service, as an operator does, and kills it if that takes too long.
func (s *Service) Stop() error {
	_ = s.cmd.Process.Signal(os.Interrupt) // fails if it has ended
	select {
	case err := <-s.ended:
		return err
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		return fmt.Errorf("servicebench: %s did not stop within 20 s: %w", s.name, <-s.ended)
	}
}

// processor returns the microseconds of processor time that the service has used.
func (s *Service) processor() (float64, error) { return load.Processor(s.cmd.Process.Pid)() }
