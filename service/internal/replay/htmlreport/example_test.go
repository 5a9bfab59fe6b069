package htmlreport_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/htmlreport"
)

func ExampleWrite() {
	var requests replay.Builder
	for second := range int64(60) {
		requests.Add(1431857103_000000+second*1_000_000, replay.Selection{Key: "192.0.2.7", Cost: 1, Route: "GET /"})
	}
	trace, ctx := requests.Trace(), context.Background()
	outcomes, err := trace.Run(ctx, []replay.Candidate{{Limits: []sash.Limit{sash.PerMinute(30)}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	demand, err := trace.Demand(ctx, sash.PerMinute(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	heat, err := trace.Heat(ctx, trace.Busiest(10), 60)
	if err != nil {
		fmt.Println(err)
		return
	}
	var page bytes.Buffer
	err = htmlreport.Write(&page, &htmlreport.Page{
		Title:    "A limit of 30 a minute",
		Demand:   []replay.DemandReport{demand.Report()},
		Outcomes: outcomes,
		Heat:     heat,
	})
	fmt.Println(err, strings.Count(page.String(), `<div class="plot"`), "charts")
	// Output:
	// <nil> 2 charts
}
