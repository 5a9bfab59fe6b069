package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// What studies access logs is in sash-logs: the command that runs beside Envoy does not link it.
func TestTheCommandDoesNotLinkWhatStudiesLogs(t *testing.T) {
	out := servertest.Must(exec.Command("go", "list", "-deps", ".").Output())(t)
	for _, unwanted := range []string{"expr-lang/expr", "klauspost/compress/zstd", "internal/replay", "internal/logs"} {
		if strings.Contains(string(out), unwanted) {
			t.Errorf("sash links %s", unwanted)
		}
	}
}

func TestExitCodesOfDecisions(t *testing.T) {
	url := "redis://" + redistest.Start(t).Addr()
	env := []string{"SASH_REDIS=" + url}
	for _, step := range []struct {
		args string
		code int
		say  string
	}{
		{"peek youtube", 0, "allowed: 3 units left (3 of 3/1h, 4 of 4/24h)"},
		{"allow youtube --cost 2", 0, "allowed: 1 unit left (1 of 3/1h, 2 of 4/24h)"},
		{"allow youtube --cost 2", 1, "refused by 3/1h: 1 unit left, retry after 59m5"},
		{"allow youtube", 0, "allowed: 0 units left"},
		{"allow youtube", 1, "refused by 3/1h: 0 units left, retry after 59m5"},
		{"peek youtube --json", 1, `{"allowed":false,"remaining":0,"retry_after":35`},
		{"allow other", 0, "allowed: 2 units left"},
		{"allow youtube --prefix app", 0, "allowed: 2 units left"},
		{"allow youtube --algorithm fixed-window", 0, "allowed: 2 units left"},
		{"allow youtube --redis " + url + "/1", 0, "allowed: 2 units left"},
		{"reset youtube", 0, "reset: nothing is charged to \"youtube\" any more\n"},
		{"reset youtube --json", 0, `{"key":"youtube","reset":true}`},
		{"peek youtube", 0, "allowed: 3 units left"},
	} {
		args := append(strings.Fields(step.args), "--limit", "3/1h", "--limit", "4/24h")
		code, out, err := sash(t, env, args...)
		if code != step.code || !strings.HasPrefix(out, step.say) || err != "" {
			t.Errorf("%s: exit %d, %q, %q; want %d and %q", step.args, code, out, err, step.code, step.say)
		}
	}
	if code, out, err := sash(t, env); code != 0 || !strings.Contains(out, "sash doctor") {
		t.Errorf("sash alone: exit %d, %s%s", code, out, err)
	}
	if code, _, err := sash(t, env, "reset", "youtube", "--algorithm", "sliding-buckets"); code != 0 {
		t.Errorf("reset of buckets without a limit: exit %d, %s", code, err)
	}
}

// Every mistake is exit code 2, names what is wrong and what to do, and shows no password.
func TestMistakesAreExitCode2AndSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/empty", "\n")
	put(t, dir+"/api.yaml", "domain: d\ndescriptors:\n- {key: x-api-key, limits: [1/1h]}\n")
	redis, none := "SASH_REDIS=redis://user:pa55word@127.0.0.1:1", ""
	taken := strings.TrimPrefix(serve(t).url, "http://")
	for _, tt := range [][3]string{ // a variable, the arguments and what is said
		{none, "allow --limit 1/1s k", "forgotten when it exits"},
		{redis, "allow --limit 1/1s k", "redis at 127.0.0.1:1"},
		{redis, "allow k", "--limit is missing"},
		{redis, "allow --limit 1_per_second k", "a slash and a window"},
		{redis, "allow --limit 1/1s", "0 arguments instead of a KEY"},
		{redis, "peek --limit 1/1s k --cost 2", "can never fit into 1/1s"},
		{redis, "allow --limit 1/1s k --wait=-1s", "give how long the command can wait, up to 24h"},
		{redis, "allow --limit 1/1s k --wait=1s --algorithm gcra", "algorithm gcra"},
		{redis, "alow", "unknown command"},
		{redis, "inspect --algorithm sliding-buckets k", "--resolution is missing"},
		{redis, "inspect EMPTY", "it is empty"},
		{redis, "verify", "redis at 127.0.0.1:1"},
		{redis, "verify --for 1ms", "a second at least"},
		{redis, "verify --workers 0", "from 1 to 1000"},
		{none, "verify --history x", "give --limit too"},
		{none, "verify --history x --limit 1/1m --redis y", "no store is called"},
		{none, "verify --history gone.jsonl --limit 1/1m", "gone.jsonl: no such file"},
		{none, "verify --history x --limit 1/day@UTC", "calendar limit"},
		{redis, "serve --access=", "--access is empty"},
		{redis, "doctor --budget 0s", "above zero"},
		{redis, "doctor --redis redis+cluster://127.0.0.1:1", "redis at cluster 127.0.0.1:1"},
		{none, "config check main.go", "main.go:"},
		{none, "serve --config DIR/gone", "no such file"},
		{none, "serve --addr " + taken, "cannot listen on"},
		{none, "serve --addr unix://u:pa55word@/gone/x", "cannot listen on"},
		{none, "serve --redis unix:///u:pa55word@run/redis", "not a Redis URL"},
		{none, "serve --port 1", "unknown flag: --port (see sash serve --help)"},
		{none, "serve --log-level loud", "debug, info"},
		{none, "serve --max-wait 25h", "to 24h"},
		{none, "serve --access DIR/gone", "--access: open"},
		{none, "serve --tls-cert x.pem", "--tls-cert and --tls-key belong together"},
		{none, "serve --tls-cert x.pem --tls-key x.key", "TLS of HTTP and gRPC"},
		{none, "serve --admin-token-file DIR/none", "no such file"},
		{none, "serve --admin-token-file DIR/empty", "is empty"},
		{"SASH_ADMIN_TOKEN=short", "serve", "at least 16"},
		{none, "serve --admin-tls-cert x.pem --admin-tls-key x.key", "TLS of the admin address"},
		{"SASH_TOKEN_KEY=pa55words", "serve", "SASH_TOKEN_KEY has a key of 9 bytes"},
		{none, "serve --config DIR/api.yaml --redis 127.0.0.1:1", `d / x-api-key: the values of "x-api-key" are secret (remove that with secret: false)`},
		{"SASH_SECRET_KEYS=" + strings.Repeat("pa55word", 4) + ",short", "serve --config DIR/api.yaml",
			"SASH_SECRET_KEYS has a key of 5 bytes, the one at 2"},
	} {
		args := strings.Fields(strings.ReplaceAll(tt[1], "DIR", dir))
		for i := range args {
			args[i] = strings.NewReplacer("EMPTY", "", "_", " ").Replace(args[i])
		}
		if args[0] == "serve" && !strings.Contains(tt[1], "--addr") {
			args = append(args, "--addr", "127.0.0.1:0")
		}
		code, out, err := sash(t, []string{tt[0]}, args...)
		if code != 2 || out != "" || !strings.Contains("\n"+err, "\nsash: ") || !strings.Contains(err, tt[2]) ||
			strings.Contains(err, "pa55word") {
			t.Errorf("%s: exit %d, %q, %q; want 2 and %q", tt[1], code, out, err, tt[2])
		}
	}
}

func TestConfigCommands(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/one.yaml", strings.ReplaceAll(edge, "LIMIT", "2"))
	put(t, dir+"/two/edge.yaml", strings.ReplaceAll(edge, "LIMIT", "4"))
	put(t, dir+"/two/more.yaml", "domain: edge\ndescriptors:\n- {key: path, value: '/api/*', rate_limit: {unit: second, requests_per_unit: 0}}\n")
	put(t, dir+"/far.yaml", "domain: d\ndescriptors:\n- {key: a, limits: [100/1m], scope: global}\n")
	put(t, dir+"/watched.yaml", webRule+"  candidate: {limits: [2/1h]}\n")
	put(t, dir+"/enforced.yaml", webRule+"  candidate: {limits: [2/1h], enforce_percent: 100}\n")
	for _, tt := range []struct {
		args string
		code int
		say  string
	}{
		{"", 0, "Usage:"},
		{"example", 0, `limits: ["10/1m", "60/1h"]`},
		{"check ../../example.yaml", 0, "demo / remote_address: 10/1m and 60/1h by sliding-log\n"},
		{"check --json DIR/far.yaml", 0, `"description":"100/1m by sliding-log, scope global, lease 3s"`},
		{"check DIR/two", 0, `edge / path="/api/*": refuses everything`},
		{"explain DIR/one.yaml generic_key=login user=ann", 0, `generic_key=login  matches generic_key=login by its exact value
user=ann  matches user by its key alone
rule     edge / generic_key=login / user
limits   2/1d by sliding-log
charged  edge:generic_key:login:user:ann
metric   edge.generic_key_login.user
`},
		{"explain DIR/one.yaml user=ann", 0, "No rule: the request is allowed"},
		{"explain DIR/watched.yaml remote_address=192.0.2.7", 0,
			"held to  the limits; the candidate is watched on candidate:web:remote_address:192.0.2.7\n"},
		{"explain DIR/enforced.yaml remote_address=192.0.2.7", 0, "held to  the candidate: this subject is one of the 100%\n"},
	} {
		code, out, err := sash(t, []string{"MERGE_DOMAIN_CONFIG=true"}, append([]string{"config"}, strings.Fields(strings.ReplaceAll(tt.args, "DIR", dir))...)...)
		if said := strings.ReplaceAll(out+err, dir, "DIR"); code != tt.code || !strings.Contains(said, tt.say) {
			t.Errorf("config %s: exit %d, %s; want %d, %s", tt.args, code, said, tt.code, tt.say)
		}
	}
}

// Commands that can wait start one after the other, in the order in which they were booked, and end when they may start.
func TestAllowWaitsForItsTurn(t *testing.T) {
	env := []string{"SASH_REDIS=" + redistest.Start(t).Addr()}
	const window = 700 * time.Millisecond
	began := time.Now()
	for i := range 3 {
		code, out, err := sash(t, env, "allow", "k", "--limit", "1/700ms", "--wait", "30s", "--json")
		waited := decode[struct{ Waited float64 }](t, out).Waited
		if code != 0 || (waited > 0) != (i > 0) || waited > window.Seconds() {
			t.Fatalf("waiter %d: exit %d, %s%s", i, code, out, err)
		}
	}
	if took := time.Since(began); took < 2*window {
		t.Errorf("two waited for %v together, less than two windows", took)
	}
	code, out, _ := sash(t, env, "allow", "k", "--limit", "1/700ms", "--wait", "1ms")
	if code != 1 || !strings.HasPrefix(out, "refused by 1/700ms: 0 units left, retry after ") {
		t.Errorf("one whose turn comes too late: exit %d, %s", code, out)
	}
}

// Inspect works with the rights that the doctor prints, and those in its help for the memory.
func TestInspectShowsWhatIsChargedAndChangesNothing(t *testing.T) {
	server := redistest.Start(t)
	env := []string{"SASH_REDIS=" + limitersURL(t, server)}
	server.Must(t, "ACL", "SETUSER", "limiter", "+memory|usage")
	limits := []string{"user:42", "--limit", "10/1h", "--limit", "60/24h"}
	for _, args := range [][]string{{"--cost", "1"}, {"--cost", "5"}, {"--algorithm", "gcra"}} {
		if code, _, err := sash(t, env, append(append([]string{"allow"}, args...), limits...)...); code != 0 {
			t.Fatalf("exit %d, %s", code, err)
		}
	}
	before := server.Must(t, "DUMP", "sash:log3:user:42")
	said := ""
	for _, args := range [][]string{
		limits, append(limits, "--json"), append(limits, "--algorithm", "gcra"), {"user:42"}, {"unknown"},
		{"user:42", "--limit", "2/1h"}, // its window holds more than its units
	} {
		_, out, _ := sash(t, env, append([]string{"inspect"}, args...)...)
		said += out
	}
	for _, want := range []string{
		`^sash:log3:user:42  \(sliding-log\)\n`, `\nexpires  in 47h59m`, `\nmemory   \d+ B\n`, `\nlog      2 charges of 6 units\n`,
		`\n10/1h: 6 used, 4 left; the next unit is free in 59m5.*, all in 59m5`,
		`\n60/24h: 6 used, 54 left; the next unit is free in 23h59m5`,
		`"redis_key":"sash:log3:user:42"`, `"exists":true`, `"charges":2,"units":6`, `"used":6,"remaining":4`, `"next_free_after":35\d\d`,
		`2/1h: 6 used, 0 left`, `\(gcra\)\n(.*\n)*10/1h: 1 used, 9 left`, `sash:log3:unknown: there is no such key`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if after := server.Must(t, "DUMP", "sash:log3:user:42"); after != before {
		t.Error("the key has changed")
	}
}

const repository = "../../.."

// Every command line of README.md works as it stands. For sash serve only the flags are checked, sash verify is shortened,
// and go build, whose package is linked into this test, only says what it would do. The loop ends by itself: of 9500 units,
// 8500 of which are used, there are 10 turns of 100 left.
func TestCommandsOfTheReadme(t *testing.T) {
	text := string(readFile(t, repository+"/README.md"))
	redis := "redis://" + redistest.Start(t).Addr()
	lines := regexp.MustCompile(`(?m)^bin/sash ([^#\n]*)`).FindAllStringSubmatch(text, -1)
	for _, line := range lines {
		command := strings.ReplaceAll(line[1], "redis://127.0.0.1:6379", redis)
		switch {
		case strings.HasPrefix(command, "serve"):
			command += " --help"
		case strings.HasPrefix(command, "verify"):
			command += " --for 1s"
		}
		if code, out, err := sash(t, nil, strings.Fields(command)...); code != 0 || out == "" {
			t.Errorf("%s: exit %d, %s%s", command, code, out, err)
		}
	}
	script := func(dir, text string) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", text)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"),
			"SASH_REDIS=redis://"+redistest.Start(t).Addr())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s\n%s", err, text, out)
		}
		return string(out)
	}
	build := regexp.MustCompile(`(?m)^go build (.*)`).FindStringSubmatch(text)
	loop := regexp.MustCompile(`(?ms)^while (sash allow .*?)--cost 100;.*?^done`).FindStringSubmatch(text)
	if len(lines) < 4 || build == nil || loop == nil {
		t.Fatalf("%d commands, %q, %q", len(lines), build, loop)
	}
	script(repository, "go build -n "+build[1])
	out := script(".", loop[1]+"--cost 8500\nfetch_one() { echo fetched; }\n"+loop[0])
	if n := strings.Count(out, "fetched\n"); n != 10 || !strings.Contains(out, "refused by 9500/24h") {
		t.Errorf("%d turns, want 10: %s", n, out)
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

// limitersURL makes the user whose ACL line the doctor prints, and returns the user's URL.
func limitersURL(t *testing.T, server *redistest.Server) string {
	t.Helper()
	_, out, _ := sash(t, nil, "doctor", "--redis", server.Addr())
	server.Must(t, aclLine(t, out)...)
	return "redis://limiter:secret@" + server.Addr()
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
