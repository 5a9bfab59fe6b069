package redistest_test

import (
	"fmt"

	"example.com/sash/internal/redistest"
)

// A command, a benchmark or an example starts a server with Run; a test starts one with Start, which needs no Stop.
func Example() {
	server, err := redistest.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()

	fmt.Println(server.Do("INCRBY", "calls", "3"))
	// Output: 3 <nil>
}
