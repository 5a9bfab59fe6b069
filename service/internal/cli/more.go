//go:build !sashserver

package cli

import (
	"github.com/spf13/cobra"

	"example.com/sash/replay"
)

const (
	studiesHelp = `  sash suggest access.log          a limit to start with, from an access log
`
	verifyHelp = `  sash verify                      whether the guarantees hold there, under load
`
)

// studies returns the commands that the binary of the image does not have. They study access logs, draw and
// put load on a Redis: with charts, expressions and terminals, which serving does not need.
func (a *app) studies() []*cobra.Command {
	return []*cobra.Command{a.replay(), a.suggest(), a.verify()}
}

// studyChoices are choices of these commands.
var studyChoices = map[string][]string{
	"retry": {replay.NoRetry.String(), replay.NaiveRetry.String(), replay.HonourRetryAfter.String(), replay.FullJitter.String()},
}
