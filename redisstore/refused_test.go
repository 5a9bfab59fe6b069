package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"example.com/sash"
	"example.com/sash/redisstore"
)

func TestWhatTheServerRefuses(t *testing.T) {
	for said, want := range map[string]struct{ misconfigured, uncharged bool }{
		"NOAUTH Authentication required.":                                           {true, true},
		"WRONGPASS invalid username-password pair or user is disabled.":             {true, true},
		"NOPERM this user has no permissions to run the 'evalsha' command":          {true, true},
		"WRONGTYPE Operation against a key holding the wrong kind of value":         {true, true},
		"CROSSSLOT Keys in request don't hash to the same slot":                     {true, true},
		"NOSCRIPT No matching script. Please use EVAL.":                             {true, true},
		"ERR unknown command 'EVALSHA', with args beginning with: ":                 {true, true},
		"ERR The user executing the script can't run this command or subcommand":    {true, true},
		"SASH the key sash:log:k holds something that is not a log of this version": {true, true},
		"LOADING Redis is loading the dataset in memory":                            {false, true},
		"OOM command not allowed when used memory > 'maxmemory'.":                   {false, true},
		"READONLY You can't write against a read only replica.":                     {false, true},
		"NOREPLICAS Not enough good replicas to write.":                             {false, true},
		"CLUSTERDOWN The cluster is down":                                           {false, true},
		"dial tcp 127.0.0.1:1: connect: connection refused":                         {false, false},
	} {
		err := error(&sash.StoreError{Err: fmt.Errorf("goredisstore: log: %w", errors.New(said))})
		if got := redisstore.Misconfigured(err); got != want.misconfigured {
			t.Errorf("%s: Misconfigured is %v", said, got)
		}
		if got := redisstore.Uncharged(err); got != want.uncharged {
			t.Errorf("%s: Uncharged is %v", said, got)
		}
	}
	if redisstore.Misconfigured(nil) || redisstore.Uncharged(context.DeadlineExceeded) {
		t.Error("no error, or a caller who gave up, is misconfigured")
	}
}
