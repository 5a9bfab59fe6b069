package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	library "example.com/sash"
	"example.com/sash/goredisstore"
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

func TestVerifyTellsNothingWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		servertest.Wait(t, "no key is charged", func() bool { n, err := server.Do("DBSIZE"); return err == nil && n != int64(0) })
		clock.Move(t, -time.Hour)
	}()
	code, out, err := sash(t, nil, "verify", "--redis", server.Addr(), "--for", "1s", "--workers", "4")
	<-moved
	if code != 2 || out != "" || !strings.Contains(err, "clock went back") {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
}

// record calls a limiter fifty times and writes what it answered.
func record(t *testing.T, allow func(call int) (bool, error)) string {
	t.Helper()
	var lines strings.Builder
	for call := range 50 {
		sent := time.Now()
		admitted, err := allow(call)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, `{"key": "user_7", "sent": %q, "received": %q, "admitted": %v}`+"\n",
			sent.Format(time.RFC3339Nano), time.Now().Format(time.RFC3339Nano), admitted)
	}
	return tempFile(t, "calls.jsonl", lines.String())
}

func TestVerifyJudgesACounterThatStartsAnewAndSash(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	counter := record(t, func(call int) (bool, error) { // its window ends after half of the calls
		n, err := client.Incr(t.Context(), fmt.Sprint("counter-", call/25)).Result()
		return n <= 20, err
	})
	limiter, err := library.New(goredisstore.New(client, nil), nil, library.Every(20, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	exact := record(t, func(int) (bool, error) {
		res, err := limiter.Allow(t.Context(), "user_7")
		return res.Allowed, err
	})
	for _, tt := range []struct {
		file, limit, more string
		code              int
		says              []string
	}{
		{counter, "20/1h", "--json=false", 1, []string{
			"violated: 20 admissions went over 20/1h, on 1 of 1 key\n", `worst: "user_7" was admitted 40 units in the 1h that ends at `}},
		{counter, "20/1h", "--json", 1, []string{`"verdict":"violated"`, `"over_admitted":20`, `"units":40`}},
		{exact, "20/1h", "--json=false", 0, []string{"kept: no window held more than 20/1h, and no call was refused that certainly had room\n"}},
		{exact, "60/1h", "--json=false", 1, []string{"but 30 refusals had room"}},
	} {
		code, out, stderr := sash(t, nil, "verify", "--history", tt.file, "--limit", tt.limit, tt.more)
		for _, say := range tt.says {
			if code != tt.code || stderr != "" || !strings.Contains(out, say) {
				t.Errorf("%s: exit %d, %s%s; want %d, %q", tt.limit, code, out, stderr, tt.code, say)
			}
		}
	}
}
