//go:build !sashserver

package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/demo"
)

func (a *app) demo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show what a sliding window changes",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.demoBoundary(), a.demoWorkload())
	return cmd
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
