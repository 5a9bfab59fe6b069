package cli

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/output"
)

func (a *app) token() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token for a client of sash serve --access",
		Long: `Make a token of 32 random bytes. The client sends it, as Authorization: Bearer TOKEN. The file of
sash serve --access lists its SHA-256, from which nobody can find it:

  clients:
    - name: billing
      tokens: [SHA-256]
      allow: [decide]

To replace a token without a pause, list the new one beside the old one, give it to the client, and
remove the old one. The SHA-256 of a token of your own: printf %s TOKEN | sha256sum.`,
		Example: "  sash token\n  sash token --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			random := make([]byte, 32)
			_, _ = rand.Read(random) // never fails
			token := base64.RawURLEncoding.EncodeToString(random)
			sum := sha256.Sum256([]byte(token))
			listed := hex.EncodeToString(sum[:])
			return output.Print(a.out, asJSON, map[string]string{"token": token, "sha256": listed}, func(out *output.Text) {
				out.Say("token   %s", token)
				out.Say("sha256  %s", listed)
			})
		},
	}
	jsonFlag(cmd.Flags(), &asJSON)
	return cmd
}
