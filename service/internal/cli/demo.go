//go:build !sashserver

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/demo"
	"example.com/sash/service/internal/playground"
)

func (a *app) demo() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show what a sliding window changes",
		Long: `Show what a sliding window changes, in tables, or in a page to try it in: --serve answers with the
playground, in which calls are put on a time axis, and each algorithm decides them as it would in
production. The page holds the limiter itself and works offline.`,
		Example: `  sash demo boundary
  sash demo --serve          # http://127.0.0.1:8070/, until an interrupt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("serve") {
				return cmd.Help()
			}
			return a.servePlayground(cmd.Context(), addr)
		},
	}
	cmd.Flags().StringVar(&addr, "serve", "", "serve the playground at this `address`; without one at "+playgroundAddr)
	cmd.Flags().Lookup("serve").NoOptDefVal = playgroundAddr
	cmd.AddCommand(a.demoBoundary(), a.demoWorkload())
	return cmd
}

const playgroundAddr = "127.0.0.1:8070"

// servePlayground serves the page until the context ends.
func (a *app) servePlayground(ctx context.Context, addr string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w (another address: --serve=127.0.0.1:0 takes a free port)", err)
	}
	modified := time.Now()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "playground.html", modified, bytes.NewReader(playground.Page))
	})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if _, err := fmt.Fprintf(a.out, "the playground is at http://%s/ (an interrupt ends it)\n", listener.Addr()); err != nil {
		_ = server.Close()
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (a *app) demoBoundary() *cobra.Command {
	var url string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "boundary",
		Short: "Send a full burst on either side of a window's boundary, to all six algorithms",
		Long: `The limit is 50 units in 10 seconds. A full burst of 50 comes one second before a boundary of the
fixed window, and another 50 one second after it. No window of ten seconds may hold more than 50, so
the second burst must be refused. Fixed windows accept all 100.

By default the demo runs in virtual time on the store in memory. With --redis it runs in real time
on that server and its clock. That takes 2 to 14 seconds, on keys of its own that it removes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := a.boundary(cmd.Context(), url)
			if err != nil {
				return err
			}
			return a.print(asJSON, result, func(t *text) { boundaryText(t, result) })
		},
	}
	cmd.Flags().StringVar(&url, "redis", "", redisUsage+"; the environment is not read here")
	jsonFlag(cmd.Flags(), &asJSON)
	return cmd
}

func (a *app) boundary(ctx context.Context, url string) (demo.Boundary, error) {
	if url == "" {
		return demo.VirtualBoundary(ctx)
	}
	to, err := connect(url, "")
	if err != nil {
		return demo.Boundary{}, err
	}
	defer to.close()
	say := func(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }
	result, err := demo.LiveBoundary(ctx, to.store, to.client.Time, say)
	return result, to.explain(err)
}

func boundaryText(t *text, b demo.Boundary) {
	t.say("The limit is %s: 50 calls one second before a boundary, 50 one second after it.\n", b.Limit)
	table := t.table(tabwriter.AlignRight)
	fmt.Fprintln(table, "algorithm\tbefore\tafter\taccepted in 2 s\tabove the limit\t")
	for _, r := range b.Results {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t\n", r.Algorithm, r.Before, r.After, r.Accepted, max(0, r.Accepted-50))
	}
	_ = table.Flush() // the text keeps the error
}

func (a *app) demoWorkload() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "workload",
		Short: "Run one job under fixed and under sliding windows of the same rate",
		Long: `A client has 150 calls to make at second 150, and then 150 more, one every two seconds. Under 60
calls per fixed minute the first 150 wait for two boundaries. Under 300 calls per sliding 300
seconds, which is the same rate, nothing is refused. A caller that never stops is admitted 60 times
a minute under both. Times are seconds since the start of the first window. The demo runs in virtual
time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := demo.RunWorkload(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(asJSON, result, func(t *text) { workloadText(t, result) })
		},
	}
	jsonFlag(cmd.Flags(), &asJSON)
	return cmd
}

func workloadText(t *text, w demo.Workload) {
	for _, side := range []demo.Side{w.Fixed, w.Sliding} {
		t.say("%s, %s: from %gs to %gs, %d calls admitted, %d refused",
			side.Limit, side.Algorithm, side.Start, side.End, side.Admitted, side.Refusals)
		for _, phase := range side.Phases {
			t.say("  %s from %gs to %gs: %d admitted, %d refused", phase.Name, phase.Start, phase.End, phase.Admitted, phase.Refusals)
			for _, try := range phase.Attempts {
				t.say("    at %gs %d wanted: %d admitted, %d refused", try.At, try.Wanted, try.Admitted, try.Refused)
			}
		}
		t.say("  a caller that never stops is admitted %g times a minute\n", side.NeverStops)
	}
	t.say("The sliding window ends %gs earlier.", w.Saved)
}
