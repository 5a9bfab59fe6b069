package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// aclLine returns the line that the doctor prints, with the password secret.
func aclLine(t *testing.T, out string) []string {
	t.Helper()
	_, line, found := strings.Cut(out, "ACL SETUSER ")
	if !found {
		t.Fatalf("no ACL line in %s", out)
	}
	line, _, _ = strings.Cut(line, "\n")
	return append([]string{"ACL", "SETUSER"}, strings.Fields(strings.Replace(line, "PASSWORD", "secret", 1))...)
}

// limitersURL makes the user whose ACL line the doctor prints, and returns the user's URL.
func limitersURL(t *testing.T, server *redistest.Server) string {
	t.Helper()
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	server.Must(t, aclLine(t, out)...)
	return "redis://limiter:secret@" + server.Addr()
}

func TestDoctorExitCodes(t *testing.T) {
	server := redistest.Start(t)
	cache := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	protected := redistest.Start(t, "--requirepass", "right")
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{server.Addr()}, 0, " 0 to repair"},
		{[]string{server.Addr(), "--strict"}, 1, " 0 to repair"},
		{[]string{server.Addr(), "--budget", "1ns"}, 1, "raise the budget"},
		{[]string{cache.Addr()}, 1, "fail       eviction     allkeys-lru: when memory is full Redis evicts keys"},
		{[]string{"redis://:secret@" + protected.Addr()}, 2, "WRONGPASS"},
		{[]string{protected.Addr()}, 2, "NOAUTH"},
	} {
		code, out, err := sash(t, nil, append([]string{"doctor", "--redis"}, c.args...)...)
		if code != c.code || (err != "") != (code == 2) || !strings.Contains(out+err, c.say) || strings.Contains(err, "secret") {
			t.Errorf("%v: exit %d, %s%s; want %d and %q", c.args, code, out, err, c.code, c.say)
		}
	}
}

// The doctor finds nothing wrong in a setup that it recommends, with the user whose ACL line it prints, whatever that user
// was before. sash serve needs no more rights.
func TestDoctorIsContentWithWhatItAsksFor(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb")
	redistest.StartReplica(t, server.Addr())
	server.Must(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	servertest.Wait(t, "the primary does not count its replica", func() bool {
		_, err := server.Do("SET", "a", "b", "PX", "1")
		return err == nil
	})
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	if strings.Count(out, "\nwarn ") != 1 || !strings.Contains(out, "\nwarn       acl ") {
		t.Errorf("as an administrator: %s", out)
	}
	limitersURL(t, server)
	fresh := fmt.Sprint(server.Must(t, "ACL", "GETUSER", "limiter"))
	server.Must(t, "ACL", "SETUSER", "limiter", "on", "nopass", ">old", "allkeys", "allchannels", "allcommands", "(~other:* +get)")
	url := limitersURL(t, server)
	if over := fmt.Sprint(server.Must(t, "ACL", "GETUSER", "limiter")); over != fresh {
		t.Errorf("over an earlier user the line gives\n%s, and a new one\n%s", over, fresh)
	}
	code, out, err := sash(t, nil, "doctor", "--strict", "--json", "--redis", url)
	v := decode[struct {
		Findings                  []struct{ Check, Level, Seen string }
		OK, Warn, Fail, Unchecked int
	}](t, out)
	if code != 0 || v.OK < 4 || v.Warn+v.Fail > 0 || v.Unchecked == 0 || strings.Contains(out+err, "secret") {
		t.Errorf("as the limiter's user: exit %d, %s%s", code, out, err)
	}
	p := servePolicies(t, "--redis", url)
	p.normal(t)
	servertest.Wait(t, "the instance is not counted", func() bool { return p.health(t).Instances == 1 })
	if logs := p.stopped(t); strings.Contains(logs, "level=ERROR") || strings.Contains(logs, "level=WARN") {
		t.Errorf("logs: %s", logs)
	}
}

// The doctor looks at the keys of sash serve in the same environment: a user who may use others only is not fine, and with
// the rights for these no command uses others.
func TestDoctorChecksTheKeysOfServe(t *testing.T) {
	for _, prefix := range []string{"edge:", "d*[?]\\:", "doctor"} {
		server := redistest.Start(t)
		limitersURL(t, server)
		server.Must(t, "FLUSHALL")
		env := []string{
			"RUNTIME_ROOT=" + t.TempDir(), "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + server.Addr(),
			"REDIS_AUTH=limiter:secret", "CACHE_KEY_PREFIX=" + prefix,
		}
		code, out, _ := sash(t, env, "doctor")
		if code != 1 || !strings.Contains(out, "fail       scripts") || !strings.Contains(out, "fail       acl") {
			t.Errorf("a user for other keys: exit %d, %s", code, out)
		}
		server.Must(t, aclLine(t, out)...)
		for command, say := range map[string]string{
			"doctor": "ok         acl", "allow --limit 3/1m k": "allowed", "inspect --json k": `"redis_key":`, "verify --for 1s --workers 2": "kept",
		} {
			if code, out, err := sash(t, env, strings.Fields(command)...); code != 0 || !strings.Contains(out, say) {
				t.Errorf("prefix %s, %s: exit %d, %s%s", prefix, command, code, out, err)
			}
		}
		for _, key := range server.Must(t, "KEYS", "*").([]any) {
			if name := key.(string); !strings.HasPrefix(name, prefix) {
				t.Errorf("the key %s does not begin with %s", name, prefix)
			}
		}
	}
}

// The doctor looks at the Redis of the region, at the home, and at the leases of the rules.
func TestDoctorLooksAtTheHome(t *testing.T) {
	region, home := redistest.Start(t), redistest.Start(t)
	rules := tempFile(t, "rules.yaml", "domain: d\ndescriptors:\n- {key: k, limits: [\"100/1m\"], scope: global, lease: 1ms}\n")
	check := func(code int, args string, says ...string) {
		t.Helper()
		got, out, err := sash(t, nil, append([]string{"doctor", "--redis", region.Addr()}, strings.Fields(args)...)...)
		for _, say := range says {
			if got != code || !strings.Contains(out+err, say) {
				t.Errorf("%s: exit %d, %s%s; want %d, %q", args, got, out, err, code, say)
			}
		}
	}
	one := "--home " + home.Addr() + " --config " + rules
	check(0, one, "redis at "+region.Addr(), "home at "+home.Addr(), "the budget is 1s", " fit a way of ")
	check(0, one+" --json", `"home":{`, `"redis":"`+region.Addr(), `"redis":"`+home.Addr(), `"lease"`)
	check(2, "--config "+rules, "give --home too")
	home.Stop()
	check(2, one, "the home: redis at "+home.Addr())
}

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
				if code != want || err != "" || !strings.HasPrefix(out, verdict) || !strings.Contains(out, "seed 42") ||
					strings.Contains(out, "over the limit: ") != (want == 1) {
					t.Errorf("exit %d, %s%s", code, out, err)
				}
			})
		}
	})
	if n := server.Must(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
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
