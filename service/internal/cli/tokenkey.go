package cli

import (
	"fmt"
	"log/slog"
)

// tokenKeyVariable is the environment variable with the secret that seals the tokens of reservations. It is no
// flag, because those show in lists of processes.
const tokenKeyVariable = "SASH_TOKEN_KEY"

// leastTokenKey is the fewest bytes of the secret: as many as the hash has.
const leastTokenKey = 32

// tokenKey returns the secret, or nil for one that this process makes up.
func (a *app) tokenKey(shared bool, log *slog.Logger) ([]byte, error) {
	key := a.env(tokenKeyVariable)
	switch {
	case key == "" && shared:
		log.Info("reservations can be settled only by the instance that made them: give all instances one key in " + tokenKeyVariable)
		return nil, nil
	case key == "":
		return nil, nil
	case len(key) < leastTokenKey:
		return nil, fmt.Errorf("%s has %d bytes: a secret that cannot be guessed has at least %d, such as openssl rand -base64 32 prints", tokenKeyVariable, len(key), leastTokenKey)
	}
	return []byte(key), nil
}
