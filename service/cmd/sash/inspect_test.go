package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

func TestInspectShowsWhatIsChargedAndChangesNothing(t *testing.T) {
	server := redistest.Start(t)
	env := []string{"SASH_REDIS=" + server.Addr()}
	limits := []string{"--limit", "10/1h", "--limit", "60/24h"}
	for _, cost := range []string{"1", "2", "3"} {
		if code, _, err := sash(t, env, append([]string{"allow", "user:42", "--cost", cost}, limits...)...); code != 0 {
			t.Fatalf("exit %d, %s", code, err)
		}
	}
	before := server.Must(t, "DUMP", "sash:log:user:42")

	code, out, err := sash(t, env, append([]string{"inspect", "user:42"}, limits...)...)
	if code != 0 || err != "" {
		t.Fatalf("exit %d, %s", code, err)
	}
	for _, want := range []string{
		`^sash:log:user:42  \(sliding-log\)\n`, `\nexpires  in 47h59m`, `\nmemory   \d+ B\n`,
		`\nlog      3 charges of 6 units\n`,
		`\n10/1h: 6 used, 4 left; the next unit is free in 59m5.*, all in 59m5`,
		`\n60/24h: 6 used, 54 left; the next unit is free in 23h59m5`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var in struct {
		RedisKey string `json:"redis_key"`
		Exists   bool
		TTL      float64
		Memory   int64 `json:"memory_bytes"`
		Log      struct{ Charges, Units int64 }
		Limits   []struct {
			Name            string
			Used, Remaining int64
			NextFree        float64 `json:"next_free_after"`
		}
	}
	code, out, _ = sash(t, env, append([]string{"inspect", "--json", "user:42"}, limits...)...)
	if err := json.Unmarshal([]byte(out), &in); err != nil || code != 0 {
		t.Fatal(code, err, out)
	}
	if in.RedisKey != "sash:log:user:42" || !in.Exists || in.Memory <= 0 || in.TTL < 47*3600 ||
		in.Log.Charges != 3 || in.Log.Units != 6 || len(in.Limits) != 2 || in.Limits[0].Used != 6 || in.Limits[0].NextFree < 3500 {
		t.Errorf("%+v", in)
	}
	// The window of a lowered limit may hold more than its units.
	if _, out, _ := sash(t, env, "inspect", "user:42", "--limit", "2/1h"); !strings.Contains(out, "2/1h: 6 used, 0 left") {
		t.Errorf("a lowered limit:\n%s", out)
	}
	if after := server.Must(t, "DUMP", "sash:log:user:42"); after != before {
		t.Error("the key has changed")
	}
}

func TestInspectKnowsEveryAlgorithm(t *testing.T) {
	env := []string{"SASH_REDIS=" + redistest.Start(t).Addr()}
	for algorithm, log := range map[string]bool{
		"sliding-log": true, "sorted-set-log": true, "sliding-buckets": true, "sliding-counter": false, "fixed-window": false, "gcra": false,
	} {
		args := []string{"--algorithm", algorithm, "--limit", "10/24h", "k"}
		if algorithm == "sliding-buckets" {
			args = append(args, "--resolution", "1s")
		}
		if code, _, err := sash(t, env, append([]string{"allow", "--cost", "4"}, args...)...); code != 0 {
			t.Fatalf("%s: exit %d, %s", algorithm, code, err)
		}
		code, out, err := sash(t, env, append([]string{"inspect"}, args...)...)
		if code != 0 || strings.Contains(out, "\nlog      1 charge of 4 units\n") != log || !strings.Contains(out, "\n10/24h: 4 used, 6 left") {
			t.Errorf("%s: exit %d, %s\n%s", algorithm, code, err, out)
		}
	}
	code, out, _ := sash(t, env, "reset", "k")
	if code != 0 {
		t.Fatal(out)
	}
	code, out, _ = sash(t, env, "inspect", "k")
	if code != 0 || !strings.Contains(out, "there is no such key") || !strings.Contains(out, "sash:gcra2:k: see it with --algorithm gcra") {
		t.Errorf("a key under other algorithms: exit %d, %s", code, out)
	}
	for name, args := range map[string][]string{
		"--resolution is missing": {"--algorithm", "sliding-buckets", "k"}, "it is empty": {""},
	} {
		if code, _, err := sash(t, env, append([]string{"inspect"}, args...)...); code != 2 || !strings.Contains(err, name) {
			t.Errorf("%v: exit %d, %s", args, code, err)
		}
	}
}

// The user whose ACL line the doctor prints can inspect logs, without their memory. With the rights in the help it can
// inspect everything.
func TestInspectAsTheLimitersUser(t *testing.T) {
	server := redistest.Start(t)
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	_, line, found := strings.Cut(out, "the limiter its own user: ")
	if !found {
		t.Fatalf("no ACL line in %s", out)
	}
	line, _, _ = strings.Cut(line, "\n")
	server.Must(t, strings.Fields(strings.Replace(line, "PASSWORD", "secret", 1))...)
	env := []string{"SASH_REDIS=redis://limiter:secret@" + server.Addr()}
	look := func(algorithm string) (int, string) {
		code, out, err := sash(t, env, "inspect", "--algorithm", algorithm, "--limit", "10/1h", "k")
		return code, out + err
	}
	algorithms := []string{"sliding-log", "sorted-set-log", "fixed-window", "sliding-counter", "gcra"}
	for _, a := range algorithms {
		if code, _, err := sash(t, env, "allow", "--algorithm", a, "--limit", "10/1h", "k"); code != 0 {
			t.Fatal(err)
		}
		if code, out := look(a); code != 0 || strings.Contains(out, "\nmemory") {
			t.Errorf("%s: exit %d, %s", a, code, out)
		}
	}
	server.Must(t, "ACL", "SETUSER", "limiter", "+memory|usage")
	for _, a := range algorithms {
		if code, out := look(a); code != 0 || !strings.Contains(out, "\nmemory ") || !strings.Contains(out, "1 used, 9 left") {
			t.Errorf("%s with more rights: exit %d, %s", a, code, out)
		}
	}
}
