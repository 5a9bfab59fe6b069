package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	library "example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

// record calls a limiter fifty times and writes what it answered.
func record(t *testing.T, allow func(call int) (bool, error)) string {
	t.Helper()
	var lines strings.Builder
	for call := range 50 {
		sent := time.Now()
		admitted, err := allow(call)
		received := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, `{"key": "user_7", "sent": %q, "received": %q, "admitted": %v}`+"\n", sent.Format(time.RFC3339Nano), received.Format(time.RFC3339Nano), admitted)
	}
	name := tempFile(t, "calls.jsonl", lines.String())
	return name
}

func TestVerifyJudgesACounterThatStartsAnewAndSash(t *testing.T) {
	t.Parallel()
	const units, window = 20, time.Hour
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	counter := record(t, func(call int) (bool, error) { // its window ends after half of the calls
		n, err := client.Incr(t.Context(), fmt.Sprint("counter-", call/25)).Result()
		return n <= units, err
	})
	limiter, err := library.New(goredisstore.New(client, nil), nil, library.Every(units, window))
	if err != nil {
		t.Fatal(err)
	}
	exact := record(t, func(int) (bool, error) {
		res, err := limiter.Allow(t.Context(), "user_7")
		return res.Allowed, err
	})

	code, out, stderr := sash(t, nil, "verify", "--history", counter, "--limit", "20/1h")
	if code != 1 || stderr != "" || !regexp.MustCompile(`^violated: 20 admissions went over 20/1h, on 1 of 1 key\n  worst: "user_7" was admitted 40 units in the 1h that ends at `).MatchString(out) {
		t.Errorf("a counter: exit %d, %s%s", code, out, stderr)
	}
	code, out, _ = sash(t, nil, "verify", "--history", counter, "--limit", "20/1h", "--json")
	var answer struct {
		Verdict string `json:"verdict"`
		Over    int    `json:"over_admitted"`
		Faults  []struct {
			Key   string `json:"key"`
			Units int64  `json:"units"`
		} `json:"faults"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 1 || answer.Verdict != "violated" || answer.Over != 20 || len(answer.Faults) != 1 || answer.Faults[0].Units != 2*units {
		t.Errorf("exit %d, %s, %v", code, out, err)
	}
	if code, out, stderr = sash(t, nil, "verify", "--history", exact, "--limit", "20/1h"); code != 0 || stderr != "" || !strings.HasPrefix(out, "kept: no window held more than 20/1h, and no call was refused that certainly had room\n") {
		t.Errorf("Sash: exit %d, %s%s", code, out, stderr)
	}
	if code, out, _ = sash(t, nil, "verify", "--history", exact, "--limit", "60/1h"); code != 1 || !strings.Contains(out, "but 30 refusals had room") {
		t.Errorf("by a larger limit: exit %d, %s", code, out)
	}
}
