package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"example.com/sash/service/internal/serve"
)

// Signals returns a context that ends with SIGTERM, or with an interrupt, whose cause is serve.ErrInterrupted. A second
// signal ends the process at once. SIGHUP, which asks many services to read their configuration again, changes nothing: sash
// reads it whenever it changes.
func Signals() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGHUP)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		signal.Stop(signals)
		if first == os.Interrupt {
			cancel(serve.ErrInterrupted)
			return
		}
		cancel(nil)
	}()
	return ctx
}
