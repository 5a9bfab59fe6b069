package accesslog_test

import (
	"fmt"
	"strings"

	"example.com/sash/service/internal/replay/accesslog"
)

func ExampleRead() {
	log := `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /search?q=1 HTTP/1.1" 200 2326 "-" "curl"
this line is broken
`
	stats, err := accesslog.Read("access.log", strings.NewReader(log), accesslog.Options{}, func(r *accesslog.Record) error {
		fmt.Println(r.When(), r.RemoteAddress, r.Method, r.Path, r.Status)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stats.Records, "read,", stats.Broken, "broken")
	// Output:
	// 2015-05-17 10:05:03 +0000 UTC 192.0.2.7 GET /search 200
	// 1 read, 1 broken
}
