package regionbench

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes this program a calling process where a test starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Caller {
		if err := Call(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
