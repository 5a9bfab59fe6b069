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
	file := readFile(t, "../../../Dockerfile")
	var err error
	for line := range strings.Lines(string(file)) {
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
	return env, entry, args
}

// The image of Envoy's service is replaced in a deployment that sets its variables and, as a container engine has it, its
// command as entry point or as arguments. The variables decide, and not what the image has by default.
func TestTheImageReplacesEnvoys(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "rl", "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "domain: theirs\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
	if err := os.WriteFile(filepath.Join(root, "rl", "config", "a.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	ours, entry, args := image(t)
	if len(ours) == 0 || len(entry) != 1 || len(args) == 0 {
		t.Fatalf("the Dockerfile has ENV %v, ENTRYPOINT %v, CMD %v", ours, entry, args)
	}
	named := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(binary, named); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string][]string{
		"no command":                 append([]string{binary}, args...),
		"the command as entry point": {named},
		"the command as arguments":   {binary, "/bin/ratelimit"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(line[0], line[1:]...)
			cmd.Env = append(ours, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=rl", "LOG_FORMAT=text", "LOG_LEVEL=info",
				"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
				"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr())
			p := run(t, cmd)
			if !strings.Contains(p.greets, filepath.Join(root, "rl", "config")+": domains theirs") {
				t.Errorf("it serves %s", p.greets)
			}
			if log := p.logs.String(); strings.HasPrefix(log, "{") {
				t.Errorf("LOG_FORMAT=text logs %s", log)
			}
		})
	}
}

// Without variables of Envoy's service the image has its own defaults, and under the name of that service its defaults.
func TestTheDefaultsOfTheImage(t *testing.T) {
	ours, _, args := image(t)
	line := append(args, "--addr", "127.0.0.1:0")
	_, _, logs := sash(t, ours, line...)
	if !strings.Contains(logs, "/etc/sash") {
		t.Errorf("without a configuration: %q", logs)
	}
	if _, _, logs = sash(t, ours, "/bin/ratelimit"); !strings.Contains(logs, "/srv/runtime_data/current/config") {
		t.Errorf("/bin/ratelimit without a configuration: %q", logs)
	}
	if _, _, logs = sash(t, ours, append(line, "--config", "/flag")...); !strings.Contains(logs, "/flag") {
		t.Errorf("with --config: %q", logs)
	}
}
