//go:build !sashserver

package cli

import "github.com/spf13/cobra"

const studiesHelp = `  sash suggest access.log          a limit to start with, from an access log
`

// studies returns the commands that the binary of the image does not have. They read access logs and draw: with plots,
// fonts, expressions and terminals, which serving does not need.
func (a *app) studies() []*cobra.Command {
	return []*cobra.Command{a.replay(), a.suggest(), a.top()}
}
