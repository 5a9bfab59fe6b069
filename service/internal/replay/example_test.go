package replay_test

import (
	"context"
	"fmt"

	"example.com/sash/service/internal/replay"
)

func Example() {
	var requests replay.Builder
	for second := range int64(20) { // twenty requests, one each second
		requests.Add(1431857103_000000+second*1_000_000, replay.Selection{Key: "192.0.2.7", Cost: 1, Route: "GET /"})
	}
	limits, err := replay.ParseLimits("5/10s,100/1h")
	if err != nil {
		fmt.Println(err)
		return
	}
	outcomes, err := requests.Trace().Run(context.Background(), []replay.Candidate{{Limits: limits}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(outcomes[0].Refused, "of", outcomes[0].Requests, "refused to", outcomes[0].ClientsLimited, "client")
	// Output:
	// 10 of 20 refused to 1 client
}
