// Command sash limits rates: as a service, and in shell scripts. Run sash --help.
package main

import (
	"os"
	_ "time/tzdata" // calendar limits name zones, and a small image has none

	"example.com/sash/service/internal/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr, os.Getenv)) }
