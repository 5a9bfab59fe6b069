// Command sash limits rates: as a service, and in shell scripts. Run sash --help.
package main

import (
	"os"
	_ "time/tzdata" // calendar limits name zones, and a small image has none

	_ "golang.org/x/crypto/x509roots/fallback" // a small image has no certificates of public authorities either

	"example.com/sash/service/internal/cli"
)

func main() {
	os.Exit(cli.Run(cli.Signals(), cli.Args(os.Args), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}
