package htmlreport_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/replay"
	"example.com/sash/replay/htmlreport"
)

func ExampleWrite() {
	var requests replay.Builder
	for second := range int64(60) {
		requests.Add(1431857103_000000+second*1_000_000, replay.Selection{Key: "192.0.2.7", Cost: 1, Route: "GET /"})
	}
	trace := requests.Trace()
	outcomes, err := trace.Run(context.Background(), []replay.Candidate{{Limits: []sash.Limit{sash.PerMinute(30)}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var page bytes.Buffer
	err = htmlreport.Write(&page, &htmlreport.Page{
		Title:    "A limit of 30 a minute",
		Demand:   []replay.DemandReport{trace.Demand(time.Minute).Report()},
		Outcomes: outcomes,
		Heat:     trace.Heat(trace.Busiest(10), 60),
	})
	fmt.Println(err, strings.Count(page.String(), "<svg"), "plots")
	// Output:
	// <nil> 2 plots
}
