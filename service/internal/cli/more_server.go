//go:build sashserver

package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

const studiesHelp, verifyHelp = "", ""

// terminalWidth returns 0: there is nothing in this binary that asks a terminal.
func terminalWidth(io.Writer) int { return 0 }

var studyChoices map[string][]string

// studies are not part of the binary of the image. The commands here say where they are.
func (a *app) studies() (absent []*cobra.Command) {
	for _, name := range []string{"replay", "suggest", "verify"} {
		absent = append(absent, &cobra.Command{
			Use:                name,
			Hidden:             true,
			DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return fmt.Errorf("the image's binary does not have %s; the sash command does: go install example.com/sash/service/cmd/sash@latest", name)
			},
		})
	}
	return absent
}
