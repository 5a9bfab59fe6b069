//go:build !sashserver

package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/watch"
	"example.com/sash/service/internal/wire"
)

// watching is the flags of sash top.
type watching struct {
	admin, tokenFile string
	once, json       bool
}

func (a *app) top() *cobra.Command {
	w := &watching{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a service: decisions by rule, the store, busy and refused subjects",
		Long: `Watch sash serve, once a second: decisions by rule and outcome, the state of its store, and the
subjects that request the most units and are refused most often. It reads what the dashboard reads,
from the admin address.

Subjects name users, so they are shown only with the admin token: --token-file or SASH_ADMIN_TOKEN.
If standard output is not a terminal it prints one state and ends, as with --once.`,
		Example: `  sash top
  sash top --admin https://limits.example.com:6070 --token-file token
  sash top --json | jq .requests.rate`,
		Args: noAddress,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runTop(cmd.Context(), w) },
	}
	f := cmd.Flags()
	f.StringVar(&w.admin, "admin", "http://127.0.0.1:6070", "`URL` of the admin address")
	f.StringVar(&w.tokenFile, "token-file", "", "`file` with the admin token, the first if there are several (default: $"+adminTokenVariable+")")
	f.BoolVar(&w.once, "once", false, "print one state and end")
	f.BoolVar(&w.json, "json", false, "print one state as a line of JSON and end")
	return cmd
}

func (a *app) runTop(ctx context.Context, w *watching) error {
	if at, err := url.Parse(w.admin); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return fmt.Errorf("--admin %q: give a URL such as http://127.0.0.1:6070", w.admin)
	}
	tokens, err := adminTokens("--token-file", w.tokenFile, a.env(adminTokenVariable))
	if err != nil {
		return err
	}
	client := &watch.Client{Admin: w.admin}
	if len(tokens) > 0 {
		client.Token = tokens[0]
	}
	if screen, ok := a.out.(*os.File); ok && isTerminal(screen) && !w.once && !w.json {
		return client.Screen(ctx, os.Stdin, screen)
	}
	out := &text{to: a.out}
	err = client.Watch(ctx, func(s wire.Event, state []byte) bool {
		if w.json {
			out.say("%s", state)
		} else {
			out.say("%s", watch.Text(&s, 0, 0, false))
		}
		return false
	})
	return cmp.Or(err, out.err)
}
