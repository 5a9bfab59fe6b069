// Command release sets the versions of the modules of this repository. Run it in the root of a checkout:
//
//	go run ./internal/release tag v0.2.0   // make release VERSION=v0.2.0
//	go run ./internal/release tidy         // make tidy
//
// The modules are those of go.work. Every one is published but those under internal/ and examples/. Published modules are
// released together, at one version. A user can still combine versions, because each go.mod says what its module needs at least.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	repo, err := load(".")
	switch {
	case err != nil:
		return err
	case len(args) == 1 && args[0] == "tidy":
		return repo.tidy(ctx, os.Stdout)
	case len(args) == 2 && args[0] == "tag":
		next, err := repo.release(ctx, args[1], time.Now())
		if err == nil {
			fmt.Print(next)
		}
		return err
	}
	return errors.New("want tidy, or tag and a version: make tidy, make release VERSION=v0.2.0")
}

// output runs a command in a directory and returns what it printed, without the last line end. Its error has what the
// command printed as an error.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, failed.Stderr)
	}
	return strings.TrimSuffix(string(out), "\n"), err
}
