package servicebench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// policy has one rule, whose limit nobody reaches.
const policy = `domain: bench
descriptors:
  - key: client
    limits: ["10000/1m"]
`

// build makes the command that users run, in a directory.
func build(dir string) (string, error) {
	binary := filepath.Join(dir, "sash")
	if out, err := exec.Command("go", "build", "-o", binary, "example.com/sash/service/cmd/sash").CombinedOutput(); err != nil {
		return "", fmt.Errorf("servicebench: building sash: %w\n%s", err, out)
	}
	return binary, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600)
}

// A service is a running sash serve.
type service struct {
	URL, GRPC, Admin string

	cmd   *exec.Cmd
	ended chan error
}

// serve starts the service; no Redis is its own memory.
func serve(binary, redis string) (*service, error) {
	args := []string{"serve", "--json", "--config", filepath.Join(filepath.Dir(binary), "policy.yaml"), "--log-level", "error",
		"--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}
	if redis != "" {
		args = append(args, "--redis", "redis://"+redis)
	}
	s := &service{cmd: exec.Command(binary, args...), ended: make(chan error, 1)}
	s.cmd.Env, s.cmd.Stderr = []string{}, os.Stderr
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
		return nil, errors.Join(fmt.Errorf("servicebench: sash serve did not start: %w", err), s.stop())
	}
	return s, nil
}

// stop ends the service as an operator does, and the hard way where that takes too long.
func (s *service) stop() error {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case err := <-s.ended:
		return err
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		return fmt.Errorf("servicebench: sash serve had to be killed: %w", <-s.ended)
	}
}

// processor returns the seconds of processor time that the service has used.
func (s *service) processor() (float64, error) {
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Get("http://" + s.Admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, errors.New("servicebench: /metrics has no process_cpu_seconds_total")
}
