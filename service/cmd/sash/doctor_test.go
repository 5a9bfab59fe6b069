package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

func TestDoctorExitCodes(t *testing.T) {
	server := redistest.Start(t)
	cache := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"--redis", server.Addr()}, 0, " 0 to repair"},
		{[]string{"--redis", server.Addr(), "--strict"}, 1, " 0 to repair"},
		{[]string{"--redis", server.Addr(), "--budget", "1ns"}, 1, "raise the budget"},
		{[]string{"--redis", cache.Addr()}, 1, "fail       eviction     allkeys-lru: when memory is full Redis evicts keys"},
	} {
		code, out, err := sash(t, nil, append([]string{"doctor"}, c.args...)...)
		if code != c.code || err != "" || !strings.Contains(out, c.say) {
			t.Errorf("%v: exit %d, %s%s; want %d and %q", c.args, code, out, err, c.code, c.say)
		}
	}
}

// The doctor finds nothing wrong in a setup that it recommends, with the user whose ACL line it prints.
func TestDoctorIsContentWithWhatItAsksFor(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb")
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")
	servertest.Wait(t, "the replica has no link to its primary", func() bool {
		return strings.Contains(replica.Must(t, "INFO", "replication").(string), "master_link_status:up")
	})
	server.Must(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	servertest.Wait(t, "the primary does not count its replica", func() bool {
		_, err := server.Do("SET", "a", "b", "PX", "1")
		return err == nil
	})
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	if strings.Count(out, "\nwarn ") != 1 || !strings.Contains(out, "\nwarn       acl ") {
		t.Errorf("as an administrator: %s", out)
	}
	server.Must(t, aclLine(t, out)...)
	code, out, err := sash(t, nil, "doctor", "--strict", "--json", "--redis", "redis://limiter:secret@"+server.Addr())
	var v struct {
		Findings                  []struct{ Check, Level, Seen string }
		OK, Warn, Fail, Unchecked int
	}
	if json.Unmarshal([]byte(out), &v) != nil || code != 0 || v.OK < 4 || v.Warn+v.Fail > 0 || v.Unchecked == 0 || strings.Contains(out+err, "secret") {
		t.Errorf("as the limiter's user: exit %d, %s%s", code, out, err)
	}
}

// A user with those rights can do everything that sash serve does, counting instances included.
func TestServeNeedsNoMoreThanTheDoctorSays(t *testing.T) {
	server := redistest.Start(t)
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	server.Must(t, aclLine(t, out)...)
	p := servePolicies(t, "--redis", "redis://limiter:secret@"+server.Addr())
	p.normal(t)
	servertest.Wait(t, "the instance is not counted", func() bool { return p.health(t).Instances == 1 })
	if logs := p.stopped(t); strings.Contains(logs, "level=ERROR") || strings.Contains(logs, "level=WARN") {
		t.Errorf("logs: %s", logs)
	}
}

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

// The doctor looks at the keys of sash serve in the same environment: a user who may use others only is not fine.
func TestDoctorChecksTheKeysOfServe(t *testing.T) {
	for _, prefix := range []string{"edge:", "d*[?]\\:", "doctor"} {
		server := redistest.Start(t)
		_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
		server.Must(t, aclLine(t, out)...)
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
		if code, out, err := sash(t, env, "doctor"); code != 0 || !strings.Contains(out, "ok         acl") {
			t.Errorf("prefix %s: exit %d, %s%s", prefix, code, out, err)
		}
		if code, out, err := sash(t, env, "allow", "--limit", "3/1m", "k"); code != 0 {
			t.Errorf("allow: exit %d, %s%s", code, out, err)
		}
		if code, out, err := sash(t, env, "inspect", "--json", "k"); code != 0 || !strings.Contains(out, `"exists":true`) {
			t.Errorf("inspect: exit %d, %s%s", code, out, err)
		}
		if code, out, err := sash(t, env, "verify", "--for", "1s", "--workers", "2"); code != 0 {
			t.Errorf("verify: exit %d, %s%s", code, out, err)
		}
		for _, key := range server.Must(t, "KEYS", "*").([]any) {
			if name := key.(string); !strings.HasPrefix(name, prefix) {
				t.Errorf("the key %s does not begin with %s", name, prefix)
			}
		}
	}
}

// The line takes away what the user had before.
func TestTheDoctorsLineLeavesNothingOfAnEarlierUser(t *testing.T) {
	server := redistest.Start(t)
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	line := aclLine(t, out)
	server.Must(t, "ACL", "SETUSER", "limiter", "on", "nopass", ">old", "allkeys", "allchannels", "allcommands", "(~other:* +get)")
	server.Must(t, line...)
	before := fmt.Sprint(server.Must(t, "ACL", "GETUSER", "limiter"))
	server.Must(t, "ACL", "DELUSER", "limiter")
	server.Must(t, line...)
	if fresh := fmt.Sprint(server.Must(t, "ACL", "GETUSER", "limiter")); before != fresh {
		t.Errorf("over an earlier user the line gives\n%s, and a new one\n%s", before, fresh)
	}
	for _, command := range [][]string{{"GET", "other:1"}, {"GET", "sash:1", "x"}, {"CONFIG", "GET", "*"}, {"FLUSHALL"}, {"EVALSHA", "x", "1", "other"}, {"PUBLISH", "c", "m"}} {
		dry := append([]string{"ACL", "DRYRUN", "limiter"}, command...)
		if answer, err := server.Do(dry...); err == nil && fmt.Sprint(answer) == "OK" {
			t.Errorf("the user may %v", command)
		}
	}
	p := servePolicies(t, "--redis", "redis://limiter:secret@"+server.Addr())
	p.normal(t)
	if _, err := server.Do("ACL", "DRYRUN", "limiter", "GETRANGE", "sash:x", "0", "1"); err != nil {
		t.Error(err)
	}
}

func TestDoctorThatCannotLook(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	for url, say := range map[string]string{
		"redis://:secret@" + server.Addr(): "WRONGPASS",
		server.Addr():                      "NOAUTH",
		"redis://:secret@127.0.0.1:1":      "redis at 127.0.0.1:1",
		"redis+cluster://127.0.0.1:1":      "redis at cluster 127.0.0.1:1",
		"redis+sentinel://127.0.0.1:1/p":   "redis at p of sentinel 127.0.0.1:1",
	} {
		code, out, err := sash(t, nil, "doctor", "--redis", url)
		if code != 2 || out != "" || !strings.Contains(err, say) || strings.Contains(err, "secret") {
			t.Errorf("%s: exit %d, %q, %q; want 2 and %q", url, code, out, err, say)
		}
	}
}

// The doctor looks at each of several homes.
func TestDoctorLooksAtEachHome(t *testing.T) {
	redis, eu, us := redistest.Start(t).Addr(), redistest.Start(t).Addr(), redistest.Start(t).Addr()
	rules := tempFile(t, "rules.yaml", "domain: d\ndescriptors:\n- {key: k, limits: [\"100/1m\"], scope: global, home: us}\n")
	args := []string{"doctor", "--redis", redis, "--home", "eu=" + eu, "--home", "us=" + us, "--config", rules}
	code, out, err := sash(t, nil, args...)
	if code != 0 || !strings.Contains(out, "home eu at "+eu) || !strings.Contains(out, "home us at "+us) || strings.Count(out, " fit a way of ") != 2 {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
	_, out, _ = sash(t, nil, append(args, "--json")...)
	var v struct {
		Homes map[string]struct{ Redis string }
	}
	if json.Unmarshal([]byte(out), &v) != nil || v.Homes["eu"].Redis != eu || v.Homes["us"].Redis != us {
		t.Errorf("%s", out)
	}
	_, out, _ = sash(t, nil, "config", "check", rules)
	if !strings.Contains(out, "scope global, home us, lease 3s") {
		t.Errorf("%s", out)
	}
	for say, wrong := range map[string][]string{
		"home: us is no home of --home: use one of ap, eu": {"--home", "eu=" + eu, "--home", "ap=" + us, "--config", rules},
		"two homes eu": {"--home", "eu=" + eu, "--home", "eu=" + us},
	} {
		if code, _, err := sash(t, nil, append([]string{"doctor", "--redis", redis}, wrong...)...); code != 2 || !strings.Contains(err, say) {
			t.Errorf("exit %d, %s; want %q", code, err, say)
		}
	}
}

// With a home the doctor looks at both, and at the leases of the rules.
func TestDoctorLooksAtTheHome(t *testing.T) {
	region, home := redistest.Start(t), redistest.Start(t)
	rules := tempFile(t, "rules.yaml", "domain: d\ndescriptors:\n- {key: k, limits: [\"100/1m\"], scope: global, lease: 1ms}\n")
	args := []string{"doctor", "--redis", region.Addr(), "--home", home.Addr(), "--config", rules}
	code, out, err := sash(t, nil, args...)
	for _, want := range []string{"redis at " + region.Addr(), "home at " + home.Addr(), "the budget is 1s", " fit a way of "} {
		if code != 0 || err != "" || !strings.Contains(out, want) {
			t.Errorf("exit %d, %s%s; want %q", code, out, err, want)
		}
	}
	_, out, _ = sash(t, nil, append(args, "--json")...)
	var v struct {
		Redis string
		Home  struct {
			Redis    string
			Findings []struct{ Check string }
		}
	}
	if json.Unmarshal([]byte(out), &v) != nil || v.Redis != region.Addr() || v.Home.Redis != home.Addr() || !strings.Contains(out, `"lease"`) {
		t.Errorf("%s", out)
	}
	home.Stop()
	if code, _, err := sash(t, nil, args...); code != 2 || !strings.Contains(err, "the home: redis at "+home.Addr()) {
		t.Errorf("a home that is away: exit %d, %s", code, err)
	}
	if code, _, err := sash(t, nil, "doctor", "--redis", region.Addr(), "--config", rules); code != 2 || !strings.Contains(err, "give --home too") {
		t.Errorf("exit %d, %s", code, err)
	}
}
