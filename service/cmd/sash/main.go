// Command sash limits rates: as a service, and in shell scripts. Run sash --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // calendar limits name zones, and a small image has none

	_ "golang.org/x/crypto/x509roots/fallback" // nor has it the certificates of public authorities

	"example.com/sash/service/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Run(ctx, cli.Args(os.Args), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}
