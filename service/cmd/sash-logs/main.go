// Command sash-logs analyzes access logs. It reports what limits would have done to the requests, and suggests
// limits to start with. Run sash-logs --help.
package main

import (
	"os"
	_ "time/tzdata" // calendar limits name zones

	"example.com/sash/service/internal/logs"
)

func main() { os.Exit(logs.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
