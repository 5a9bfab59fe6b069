package rivals

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The test binary is also the programs that the tests start.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "fake":
		fake(os.Args[2])
	case len(os.Args) > 1 && os.Args[1] == GoProgram:
		if err := Serve(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
	default:
		os.Exit(m.Run())
	}
}

// self returns the program that the test binary is with an argument.
func self(t *testing.T, args ...string) Program {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Program{Rivals: "fake", Start: append([]string{binary}, args...)}
}

func command(p Program) *exec.Cmd { return exec.Command(p.Start[0], p.Start[1:]...) }

// fake has a contender that admits what it should, and misbehaves in one way.
func fake(way string) {
	switch way {
	case "dies at start":
		os.Exit(3)
	case "hangs at start":
		time.Sleep(time.Minute)
	case "garbage at start":
		fmt.Println("Picked up JAVA_TOOL_OPTIONS")
	case "nothing to offer":
		fmt.Println(`{"runtime": "fake", "contenders": []}`)
	}
	fmt.Printf(`{"runtime": "fake 1", "contenders": [{"name": %q, "version": "1.0"}]}`+"\n", way)
	admitted, calls := map[string]int64{}, 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			panic(err)
		}
		if calls++; way == "slow at first" && calls == 1 {
			fmt.Println(`{"error": "no answer within the budget"}`)
			continue
		}
		switch way {
		case "dies":
			os.Exit(3)
		case "hangs":
			time.Sleep(time.Minute)
		case "garbage":
			fmt.Println("<html>")
		case "endless line":
			for {
				fmt.Print(strings.Repeat("x", 1000))
			}
		case "no fields":
			fmt.Println("{}")
		case "an error":
			fmt.Println(`{"error": "no such limit"}`)
		default:
			of := fmt.Sprint(r.Units, r.Key)
			if r.Op == "ask" && admitted[of] < r.Units || way == "admits everything" {
				admitted[of]++
				fmt.Println(`{"allowed": true}`)
			} else if r.Op == "ask" {
				fmt.Println(`{"allowed": false}`)
			} else if way == "refuses under load" {
				fmt.Println(`{"decisions": 100, "admitted": 99, "errors": 0, "ms": 10, "p50_us": 50, "p99_us": 99}`)
			} else {
				fmt.Println(`{"decisions": 100, "admitted": 100, "errors": 0, "ms": 10, "p50_us": 50, "p99_us": 99}`)
			}
		}
	}
	if way == "stays" {
		time.Sleep(time.Minute)
	}
}
