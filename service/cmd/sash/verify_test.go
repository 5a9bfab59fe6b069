package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

func TestVerifyKeepsAndFinds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("algorithms", func(t *testing.T) {
		for algorithm, want := range map[string]int{"sliding-log": 0, "sliding-buckets": 0, "sorted-set-log": 0, "fixed-window": 1, "sliding-counter": 1, "gcra": 1} {
			t.Run(algorithm, func(t *testing.T) {
				t.Parallel()
				code, out, err := sash(t, nil, "verify", "--redis", server.Addr(), "--for", "2s", "--workers", "8", "--seed", "42", "--algorithm", algorithm)
				if code != want || err != "" || !strings.Contains(out, "seed 42") {
					t.Errorf("exit %d, %s%s", code, out, err)
				}
				if verdict := map[int]string{0: "kept: ", 1: "violated: "}[want]; !strings.HasPrefix(out, verdict) {
					t.Error(out)
				}
				if want == 1 && !strings.Contains(out, "over the limit: ") {
					t.Error(out)
				}
			})
		}
	})
	if n := server.Must(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

func TestVerifyInJSON(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	code, out, _ := sash(t, []string{"SASH_REDIS=" + server.Addr()}, "verify", "--for", "1s", "--seed", "7", "--workers", "4", "--json")
	var v struct {
		Verdict                    string
		Seed                       uint64
		Admitted, Refused, Workers int
		Faults                     []any
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || v.Verdict != "kept" || v.Seed != 7 || v.Workers != 4 || v.Admitted == 0 || v.Refused == 0 || v.Faults == nil {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
}

func TestVerifyOnAClusterAndBySentinel(t *testing.T) {
	t.Parallel()
	_, cluster := servertest.StartCluster(t)
	for name, url := range map[string]string{"cluster": cluster, "sentinel": servertest.StartWatched(t).URL()} {
		code, out, err := sash(t, nil, "verify", "--redis", url, "--for", "1s", "--workers", "4")
		if code != 0 || !strings.HasPrefix(out, "kept: ") {
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
