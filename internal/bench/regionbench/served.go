package regionbench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A service is a running sash serve of a region.
type service struct {
	URL string

	cmd *exec.Cmd
}

// build builds the command that users run, in a directory.
func build(dir string) (binary string, err error) {
	binary = filepath.Join(dir, "sash")
	if out, err := exec.Command("go", "build", "-o", binary, "example.com/sash/service/cmd/sash").CombinedOutput(); err != nil {
		return "", fmt.Errorf("regionbench: building sash: %w\n%s", err, out)
	}
	return binary, nil
}

// serve starts a sash serve for each calling process, those of a region one after the other, with the rules of the given
// ways to decide. The planet stops them.
func (p *planet) serve(binary string, ways ...decider) error {
	rules := "domain: planet\ndescriptors:\n"
	for _, d := range ways {
		rules += fmt.Sprintf("  - {key: %s, limits: [%d/%v], scope: global, lease: %v, on_unavailable: closed}\n",
			d.Prefix, d.Limit.Units, d.Limit.Window, d.Lease)
	}
	path := filepath.Join(filepath.Dir(binary), "rules.yaml") // read when the services are ready
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		return err
	}
	for _, r := range p.regions {
		for range perRegion {
			s, err := r.serve(binary, path)
			if err != nil {
				return err
			}
			p.services = append(p.services, s)
		}
	}
	return nil
}

// serve starts a sash serve in the region.
func (r *region) serve(binary, rules string) (*service, error) {
	var log bytes.Buffer
	s := &service{cmd: exec.Command(binary, "serve", "--json", "--config", rules, "--log-level", "error",
		"--redis", r.redis.Addr(), "--home", r.way.Addr(), "--addr", "127.0.0.1:0", "--grpc-addr", "", "--admin-addr", "")}
	s.cmd.Env, s.cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, &log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, s)
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("regionbench: sash serve did not start: %w\n%s", err, log.String())
	}
	return s, nil
}

// stop ends the service at once.
func (s *service) stop() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
}

// served asks a sash serve for each decision, over HTTP.
func (d *decider) served() (decide, func(), error) {
	transport := &http.Transport{MaxIdleConnsPerHost: outstanding}
	client := &http.Client{Transport: transport}
	return func(ctx context.Context, key string, cost int64) (answer, error) {
		return d.post(ctx, client, key, cost)
	}, transport.CloseIdleConnections, nil
}

// post makes one decision.
func (d *decider) post(ctx context.Context, client *http.Client, key string, cost int64) (a answer, err error) {
	body := fmt.Sprintf(`{"domain": "planet", "entries": [{"key": %q, "value": %q}], "cost": %d}`, d.Prefix, key, cost)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/allow", strings.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	var said struct {
		Allowed bool
		At      *time.Time
		Source  string
		Error   string
		Cause   string
	}
	if err := json.NewDecoder(res.Body).Decode(&said); err != nil {
		return a, err
	}
	if said.Error != "" {
		return a, fmt.Errorf("status %d, cause %s", res.StatusCode, cmp.Or(said.Cause, said.Error))
	}
	a = answer{admitted: said.Allowed, leased: said.Source == "lease"}
	if said.At != nil && !a.leased { // of a lease, it is when the home charged the units
		a.at = said.At.UnixNano()
	}
	return a, nil
}
