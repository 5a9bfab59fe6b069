package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The example of regions runs with one command, and never admits more than its limit.
func TestTheExampleOfRegionsRuns(t *testing.T) {
	for _, tool := range []string{"curl", "redis-server", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the example needs %s: %v", tool, err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(examples, "regions/run.sh"))
	port := portsInARow(t, 5)
	cmd.Env = append(os.Environ(), "SASH="+binary, fmt.Sprint("PORT=", port))
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var east, west, fromEast, fromWest, all int
	_, err = fmt.Sscanf(string(text), "east: %d of 150 calls admitted, %d of them without a trip to the home\n"+
		"west: %d of 150 calls admitted, %d of them without a trip to the home\ntogether: %d of 200 in 10m", &east, &fromEast, &west, &fromWest, &all)
	if err != nil || all != east+west || all > 200 || all < 150 || fromEast+fromWest < all/2 {
		t.Errorf("%v: %s", err, text)
	}
	for i := range 5 { // it can be run again at once
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", port+i))
		if err != nil {
			t.Errorf("a server is left: %v", err)
			continue
		}
		_ = l.Close()
	}
}

// portsInARow returns the first of some ports in a row that nobody listens on, below the range that the system gives to
// outgoing connections. In that range the connections of other tests leave few gaps.
func portsInARow(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		free := true
		for i := range n {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", port+i))
			if free = free && err == nil; err == nil {
				_ = l.Close()
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("there are no free ports in a row")
	return 0
}
