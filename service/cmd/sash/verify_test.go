package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// verify keeps exact algorithms, finds what the others admit, and leaves no key.
func TestVerifyKeepsAndFinds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("algorithms", func(t *testing.T) {
		for algorithm, want := range map[string]int{"sliding-log": 0, "sliding-buckets": 0, "sorted-set-log": 0, "fixed-window": 1, "sliding-counter": 1, "gcra": 1} {
			t.Run(algorithm, func(t *testing.T) {
				t.Parallel()
				code, out, err := sash(t, nil, "verify", "--redis", server.Addr(), "--for", "2s", "--workers", "8", "--seed", "42", "--algorithm", algorithm)
				verdict := map[int]string{0: "kept: ", 1: "violated: "}[want]
				if code != want || err != "" || !strings.HasPrefix(out, verdict) || !strings.Contains(out, "seed 42") || strings.Contains(out, "over the limit: ") != (want == 1) {
					t.Errorf("exit %d, %s%s", code, out, err)
				}
			})
		}
	})
	if n := server.Must(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

func TestVerifyOnAClusterAndBySentinel(t *testing.T) {
	t.Parallel()
	_, cluster := servertest.StartCluster(t)
	for name, url := range map[string]string{"cluster": cluster, "sentinel": servertest.StartWatched(t).URL()} {
		code, out, err := sash(t, []string{"SASH_REDIS=" + url}, "verify", "--for", "1s", "--workers", "4", "--seed", "7", "--json")
		if code != 0 || !strings.HasPrefix(out, `{"verdict":"kept"`) || !strings.Contains(out, `"seed":7`) || !strings.Contains(out, `"faults":[]`) {
			t.Errorf("%s: exit %d, %s%s", name, code, out, err)
		}
	}
}

// A history of calls is judged by a limit: three units were admitted at once, and the fourth was refused.
func TestVerifyJudgesAHistory(t *testing.T) {
	calls := ""
	for i, admitted := range []bool{true, true, true, false} {
		at := time.Date(2026, 11, 20, 10, 0, i, 0, time.UTC).Format(time.RFC3339)
		calls += fmt.Sprintf(`{"key": "user_7", "sent": %q, "received": %q, "admitted": %v}`+"\n", at, at, admitted)
	}
	file := tempFile(t, "calls.jsonl", calls)
	for args, want := range map[string]struct {
		code int
		say  string
	}{
		"--limit 2/1h":        {1, "violated: 1 admission went over 2/1h, on 1 of 1 key\n  worst: \"user_7\" was admitted 3 units in the 1h that ends at "},
		"--limit 2/1h --json": {1, `"over_admitted":1`},
		"--limit 3/1h":        {0, "kept: no window held more than 3/1h, and no call was refused that certainly had room\n"},
		"--limit 9/1h":        {1, "but 1 refusal had room"},
	} {
		code, out, stderr := sash(t, nil, append([]string{"verify", "--history", file}, strings.Fields(args)...)...)
		if code != want.code || stderr != "" || !strings.Contains(out, want.say) {
			t.Errorf("%s: exit %d, %s%s; want %d, %q", args, code, out, stderr, want.code, want.say)
		}
	}
}
