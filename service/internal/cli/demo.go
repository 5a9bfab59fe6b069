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
		Long: `The limit is 50 units in 10 seconds. A full burst of 50 comes one second before a boundary of the fixed
window, and another 50 one second after it. No window of ten seconds may hold more than 50, so the
second burst has to be refused. Fixed windows accept all 100.

By default this runs in virtual time on the embedded store. With --redis it runs in real time on that
server and its clock, which takes 2 to 14 seconds, on keys of its own that it removes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := a.boundary(cmd.Context(), url)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, result)
			}
			return a.boundaryTable(result)
		},
	}
	cmd.Flags().StringVar(&url, "redis", "", redisUsage+"; the environment is not looked at here")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func (a *app) boundary(ctx context.Context, url string) (demo.Boundary, error) {
	if url == "" {
		return demo.VirtualBoundary(ctx)
	}
	to, err := connect(url)
	if err != nil {
		return demo.Boundary{}, err
	}
	defer to.close()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(a.err, format+"\n", args...) }
	result, err := demo.LiveBoundary(ctx, to.store, to.client.Time, say)
	return result, to.explain(err)
}

func (a *app) boundaryTable(b demo.Boundary) error {
	_, err := fmt.Fprintf(a.out, "The limit is %s: 50 calls one second before a boundary, 50 one second after it.\n\n", b.Limit)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "algorithm\tbefore\tafter\taccepted in 2 s\tabove the limit\t")
	for _, r := range b.Results {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t\n", r.Algorithm, r.Before, r.After, r.Accepted, max(0, r.Accepted-50))
	}
	return t.Flush()
}

func (a *app) demoWorkload() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "workload",
		Short: "Run one job under fixed and under sliding windows of the same rate",
		Long: `A client has 150 calls to make at second 150, and after those 150 more at one per two seconds. Under 60
calls per fixed minute the first 150 wait for two boundaries. Under 300 calls per sliding 300 seconds,
which is the same rate, nothing is refused. A caller who never stops gets 60 calls a minute under both.
Times are seconds since the start of the first window. It runs in virtual time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := demo.RunWorkload(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, result)
			}
			return a.workloadTable(result)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func (a *app) workloadTable(w demo.Workload) error {
	for _, side := range []demo.Side{w.Fixed, w.Sliding} {
		_, err := fmt.Fprintf(a.out, "%s, %s: from %gs to %gs, %d calls admitted, %d refused\n",
			side.Limit, side.Algorithm, side.Start, side.End, side.Admitted, side.Refusals)
		if err != nil {
			return err
		}
		for _, phase := range side.Phases {
			_, _ = fmt.Fprintf(a.out, "  %s from %gs to %gs: %d admitted, %d refused\n", phase.Name, phase.Start, phase.End, phase.Admitted, phase.Refusals)
			for _, try := range phase.Attempts {
				_, _ = fmt.Fprintf(a.out, "    at %gs %d wanted: %d admitted, %d refused\n", try.At, try.Wanted, try.Admitted, try.Refused)
			}
		}
		_, _ = fmt.Fprintf(a.out, "  a caller who never stops gets %g calls a minute\n\n", side.NeverStops)
	}
	_, err := fmt.Fprintf(a.out, "The sliding window ends %gs earlier.\n", w.Saved)
	return err
}
