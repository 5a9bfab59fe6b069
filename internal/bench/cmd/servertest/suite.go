package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"example.com/sash/internal/bench/servers"
	"example.com/sash/internal/redistest"
)

// A suite is the tests of some packages.
type suite struct {
	name     string
	packages []string
	client   string // of tests that do not name one
}

// An event is a line of `go test -json`.
type event struct{ Action, Package, Test, Output string }

// run runs the tests on a server, and returns how many passed with each client. A test with parts counts as its parts.
func (s suite) run(ctx context.Context, server servers.Server, program string) (map[string]int, error) {
	skip := "^TestEveryMutantIsCaught$" // it tests the tests
	if !server.TLS() {
		skip += ofTLS
	}
	args := append([]string{"test", "-json", "-count=1", "-timeout=60m", "-skip", skip}, s.packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), redistest.EnvServer+"="+program)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	counts, failed := s.count(out, server)
	if err := cmd.Wait(); err != nil || failed != nil {
		return nil, errors.Join(failed, err, errors.New(errs.String()))
	}
	return counts, nil
}

// count reads the events of a run. Its error has the output of all that failed, and names packages that started no server
// of the version.
func (s suite) count(events io.Reader, server servers.Server) (map[string]int, error) {
	type test struct{ pack, name string }
	output, parts := map[test]*strings.Builder{}, map[test]bool{}
	var passed []test
	var failed []error
	ran, on := map[string]bool{}, map[string]bool{}
	for lines := json.NewDecoder(bufio.NewReader(events)); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the output of go test: %w", err)
		}
		t := test{e.Package, e.Test}
		switch e.Action {
		case "run":
			ran[e.Package] = true
			if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
				parts[test{e.Package, e.Test[:i]}] = true
			}
		case "output":
			if output[t] == nil {
				output[t] = &strings.Builder{}
			}
			output[t].WriteString(e.Output)
			on[e.Package] = on[e.Package] || strings.Contains(e.Output, redistest.Banner+server.String()+"\n")
		case "pass":
			if e.Test != "" {
				passed = append(passed, t)
			}
			delete(output, t)
		case "fail":
			if output[t] != nil {
				failed = append(failed, fmt.Errorf("%s: %s failed:\n%s", e.Package, e.Test, output[t]))
			}
		}
	}
	for pack := range ran {
		if !on[pack] {
			failed = append(failed, fmt.Errorf("%s does not say that its tests ran on %s", pack, server))
		}
	}
	counts := map[string]int{}
	for _, t := range passed {
		if !parts[t] {
			counts[s.clientOf(t.pack, t.name)]++
		}
	}
	return counts, errors.Join(failed...)
}

// clientOf returns the client that a test uses.
func (s suite) clientOf(pack, name string) string {
	for _, client := range []string{"go-redis", "rueidis"} {
		adapter := strings.ReplaceAll(client, "-", "") + "store"
		if strings.HasSuffix(pack, "/"+adapter) || strings.Contains(name+"/", "/"+client+"/") {
			return client
		}
	}
	return cmp.Or(s.client, "both")
}
