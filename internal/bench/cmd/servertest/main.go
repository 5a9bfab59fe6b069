// Command servertest runs tests on servers other than Debian's, prints what passed on which, and writes that table into a
// page. Run it in the root of a checkout: see `make test-servers`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"example.com/sash/internal/bench/servers"
)

// suites are what runs on each server.
var suites = []suite{
	{name: "conformance of the adapters", packages: []string{"./goredisstore", "./rueidisstore"}},
	{name: "model and facts", packages: []string{"./internal/modeltest"}, client: "go-redis"},
	{name: "faults, replication, failover, Cluster", packages: []string{"./internal/faulttest"}},
	{name: "the servers that tests start", packages: []string{"./redistest"}, client: "none"},
	{name: "the client of `sash serve`, and `sash doctor`", client: "both", packages: []string{
		"./service/internal/redisclient", "./service/internal/doctor",
	}},
}

// ofTLS are the tests that need a server with TLS. They do not run on one that is built without.
const ofTLS = `|^TestServerWithTLS$|^TestServersThatAreNotARedis$/^a_Redis_with_TLS|^TestWaysToAServer$/./^TLS$` +
	`|^TestFirstErrors$|^TestABudgetThatIsTooShortToConnect$|^TestTLS$`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "servertest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir := flag.String("dir", "bin/servers", "install servers below this directory")
	only := flag.String("only", "", "run only servers whose name begins with this, such as \"Redis 8\", and keep the columns of the others")
	some := flag.String("suite", "", "run only suites whose name begins with this, such as \"faults\", and keep the rows of the others")
	page := flag.String("o", "", "write the table into this page")
	flag.Parse()
	all, programs, err := get(ctx, *dir)
	if err != nil {
		return err
	}
	results := map[cell]int{}
	ran := 0
	var failed []error
	for i, s := range all {
		if !strings.HasPrefix(s.String(), *only) {
			continue
		}
		for _, suite := range suites {
			if !strings.HasPrefix(suite.name, *some) {
				continue
			}
			ran++
			began := time.Now()
			counts, err := suite.run(ctx, s, programs[i])
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %s: %v\n", s, suite.name, err)
				failed = append(failed, fmt.Errorf("%s: %s: failed; its errors are above", s, suite.name))
				counts = map[string]int{"both": 0} // none of its numbers stays
			} else {
				fmt.Fprintf(os.Stderr, "%s: %s: %v passed in %v\n", s, suite.name, counts, time.Since(began).Round(time.Second))
			}
			for client, n := range counts {
				results[cell{suite.name, client, title(s)}] = n
			}
		}
	}
	if ran == 0 {
		return fmt.Errorf("there is no server %q with a suite %q: see -only and -suite", *only, *some)
	}
	fmt.Print(markdown(all, results))
	if *page != "" {
		failed = append(failed, write(*page, all, results))
	}
	return errors.Join(failed...)
}

// get returns all servers and their programs.
func get(ctx context.Context, dir string) (all []servers.Server, programs []string, err error) {
	for _, s := range servers.All {
		got, program, err := s.Get(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		all, programs = append(all, got), append(programs, program)
	}
	return all, programs, nil
}
