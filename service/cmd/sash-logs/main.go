// Command sash-logs studies access logs: what limits would have done to their requests, and which limits to start with. Run
// sash-logs --help.
package main

import (
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // calendar limits name zones

	"context"

	"example.com/sash/service/internal/logs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := logs.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}
