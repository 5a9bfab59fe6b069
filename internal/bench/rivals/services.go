package rivals

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/servicebench"
)

// serve starts sash serve and, if there is a binary of it, Envoy's own service, on the same Redis. It returns the address
// of sash serve over RESP, where clients may bring limits along, and what the program of Go needs to ask over gRPC.
func (r *run) serve(ctx context.Context) (resp string, overGRPC []string, err error) {
	if r.dir, err = os.MkdirTemp("", "rivals"); err != nil {
		return "", nil, err
	}
	binary, err := servicebench.Build(ctx, r.dir, rules())
	if err != nil {
		return "", nil, err
	}
	access := filepath.Join(r.dir, "access.yaml")
	if err := os.WriteFile(access, []byte("anonymous: {allow: [decide, override]}\n"), 0o600); err != nil {
		return "", nil, err
	}
	s, err := servicebench.Start(binary, "--redis", "redis://"+r.server.Addr, "--access", access)
	if err != nil {
		return "", nil, err
	}
	r.services = append(r.services, s)
	overGRPC = remote{"Sash over gRPC, grpc-go", grpc.Version, s.GRPC}.arguments()
	const envoys = "Envoy's rate limit service"
	original, version, err := servicebench.StartOriginal(binary, r.server.Addr)
	if err != nil {
		r.misses(envoys, err)
		return s.RESP, overGRPC, nil
	}
	r.services = append(r.services, original)
	_, version, _ = strings.Cut(version, " v")
	return s.RESP, append(overGRPC, remote{envoys + " over gRPC", version, original.GRPC}.arguments()...), nil
}

// rules are those of the services: one for each limit that is measured, because no call over gRPC brings its limit along.
func rules() string {
	rules := "domain: bench\ndescriptors:\n"
	limits := []sash.Limit{sash.Every(checkUnits, checkWindow), sash.Every(exactUnits, exactWindow)}
	for _, w := range workloads {
		limits = append(limits, sash.Every(w.units, w.window))
	}
	units := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour"}
	written := map[sash.Limit]bool{}
	for _, l := range limits {
		if !written[l] {
			rules += fmt.Sprintf("  - {key: %q, rate_limit: {unit: %s, requests_per_unit: %d}}\n", entry(l), units[l.Window], l.Units)
		}
		written[l] = true
	}
	return rules
}

// entry names the rule of a limit.
func entry(l sash.Limit) string { return fmt.Sprintf("%d in %s", l.Units, l.Window) }

// A remote is a service that the program of Go asks over gRPC.
type remote struct{ name, version, address string }

// arguments are how the program of Go receives a remote.
func (r remote) arguments() []string { return []string{r.name, r.version, r.address} }

// remotes reads the arguments of any number of them.
func remotes(args []string) (all []remote) {
	for ; len(args) >= 3; args = args[3:] {
		all = append(all, remote{args[0], args[1], args[2]})
	}
	return all
}

func (r remote) open(limit sash.Limit) (decide load.Decide, end func(), err error) {
	return servicebench.DialGRPC(r.address, entry(limit))
}
