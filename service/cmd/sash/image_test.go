package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// An image is what the Dockerfile says: the variables, the entry point and its arguments.
func image(t *testing.T) (env, entry, args []string) {
	t.Helper()
	var err error
	for line := range strings.Lines(string(readFile(t, repository+"/Dockerfile"))) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "ENV":
			env = strings.Fields(rest)
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &entry)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &args)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(env) == 0 || len(entry) != 1 || len(args) == 0 {
		t.Fatalf("the Dockerfile has ENV %v, ENTRYPOINT %v, CMD %v", env, entry, args)
	}
	return env, entry, args
}

// ratelimit returns the command under the name of Envoy's service.
func ratelimit(t *testing.T) string {
	t.Helper()
	named := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(binary, named); err != nil {
		t.Fatal(err)
	}
	return named
}

// The image of Envoy's service is replaced in a deployment that sets its variables and, as a container engine has it, its
// command as entry point or as arguments. The variables decide, and not what the image has by default.
func TestTheImageReplacesEnvoys(t *testing.T) {
	file := tempFile(t, "rl/config/a.yaml", "domain: theirs\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	root := strings.TrimSuffix(file, "/rl/config/a.yaml")
	redis := redistest.Start(t)
	ours, _, args := image(t)
	for name, line := range map[string][]string{
		"no command":                 append([]string{binary}, args...),
		"the command as entry point": {ratelimit(t)},
		"the command as arguments":   {binary, "/bin/ratelimit"},
	} {
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Env = append(ours, envoysPorts(redis, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=rl", "LOG_FORMAT=text", "LOG_LEVEL=info")...)
		p := run(t, cmd)
		if !strings.Contains(p.greets, filepath.Join(root, "rl", "config")+": domains theirs") {
			t.Errorf("%s: it serves %s", name, p.greets)
		}
		if log := p.logs.String(); strings.HasPrefix(log, "{") {
			t.Errorf("%s: LOG_FORMAT=text logs %s", name, log)
		}
	}
}

// Without variables of Envoy's service the image has its own defaults, and under the name of that service its defaults.
func TestTheDefaultsOfTheImage(t *testing.T) {
	ours, _, args := image(t)
	line := append(args, "--addr", "127.0.0.1:0")
	for want, line := range map[string][]string{
		"/etc/sash": line, "/srv/runtime_data/current/config": {"/bin/ratelimit"}, "/flag": append(line, "--config", "/flag"),
	} {
		if _, _, logs := sash(t, ours, line...); !strings.Contains(logs, want) {
			t.Errorf("%v: %q, want %s", line, logs, want)
		}
	}
}
