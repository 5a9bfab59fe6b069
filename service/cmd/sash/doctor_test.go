package main

import (
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
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
	server, protected := redistest.Start(t), redistest.Start(t, "--requirepass", "right")
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{server.Addr()}, 0, " 0 to repair"},
		{[]string{server.Addr(), "--strict"}, 1, " 0 to repair"},
		{[]string{server.Addr(), "--budget", "1ns"}, 1, "raise the budget"},
		{[]string{"redis://:secret@" + protected.Addr()}, 2, "WRONGPASS"},
	} {
		code, out, err := sash(t, nil, append([]string{"doctor", "--redis"}, c.args...)...)
		if code != c.code || (err != "") != (code == 2) || !strings.Contains(out+err, c.say) || strings.Contains(err, "secret") {
			t.Errorf("%v: exit %d, %s%s; want %d and %q", c.args, code, out, err, c.code, c.say)
		}
	}
}

// The doctor looks at the keys of sash serve in the same environment: a user who may use others only is not fine, and with
// the rights for these no command uses others.
func TestDoctorChecksTheKeysOfServe(t *testing.T) {
	for _, prefix := range []string{"d*[?]\\:", "doctor"} {
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

// verify finds what a fixed window admits, and leaves no key.
func TestVerifyFindsAndLeavesNoKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	code, out, err := sash(t, nil, "verify", "--redis", server.Addr(), "--for", "2s", "--workers", "8", "--seed", "42", "--algorithm", "fixed-window")
	if code != 1 || err != "" || !strings.HasPrefix(out, "violated: ") || !strings.Contains(out, "seed 42") || !strings.Contains(out, "over the limit: ") {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
	if n := server.Must(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}
