//go:build deploy

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// A deployment is the section "Over the internet" of docs/security.md on this machine: its paths are below a directory,
// its name is localhost, and its certificate is of an authority of the test.
type deployment struct {
	dir    string
	blocks map[string][]string // by language
	names  *strings.Replacer
	env    []string
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	page := readFile(t, filepath.Join(repository, "docs/security.md"))
	_, section, found := strings.Cut(string(page), "\n## Over the internet\n")
	if !found {
		t.Fatal("docs/security.md does not describe the deployment")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	ca := certify(t, "localhost")
	d := &deployment{dir: ca.dir, blocks: make(map[string][]string)}
	for i, part := range strings.Split(section, "```") {
		if language, code, _ := strings.Cut(part, "\n"); i%2 == 1 {
			d.blocks[language] = append(d.blocks[language], code)
		}
	}
	if len(d.blocks["sh"]) != 2 || len(d.blocks["php"]) != 1 {
		t.Fatalf("the section has other blocks: %v", d.blocks)
	}
	free := portOf(t, freeAddress(t, 1))
	d.names = strings.NewReplacer(
		"limits.example.com:8443", "localhost:"+free, "--addr :8443", "--admin-addr 127.0.0.1:0 --addr :"+free,
		"/etc/letsencrypt/live/limits.example.com", d.dir, "/etc/", d.dir+"/etc/", "/usr/local/bin/sash", binary,
		"systemctl daemon-reload && systemctl restart sash", "true",
	)
	for from, to := range map[string]string{"localhost.pem": "fullchain.pem", "localhost.key": "privkey.pem"} {
		if err := os.Rename(ca.file(from), ca.file(to)); err != nil {
			t.Fatal(err)
		}
	}
	d.env = []string{"PATH=" + filepath.Dir(binary) + ":/usr/bin:/bin", "SSL_CERT_FILE=" + d.dir + "/authority.pem"}
	return d
}

// shell runs a script of the page and returns what it prints.
func (d *deployment) shell(t *testing.T, script string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", d.names.Replace(script))
	cmd.Env = append(append([]string{}, d.env...), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// verify has systemd check the unit with what the page adds to it.
func (d *deployment) verify(t *testing.T) {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(repository, "examples/systemd/sash.service"))
	if err == nil {
		err = os.WriteFile(d.dir+"/etc/systemd/system/sash.service", []byte(d.names.Replace(string(unit))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "sash.service")
	check.Env = append([]string{"SYSTEMD_UNIT_PATH=" + d.dir + "/etc/systemd/system:"}, d.env...)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// start does what systemd does with the unit: it puts the credentials into a directory, and runs ExecStart.
func (d *deployment) start(t *testing.T) {
	t.Helper()
	text := readFile(t, d.dir+"/etc/systemd/system/sash.service.d/internet.conf")
	credentials, run := t.TempDir(), ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "LoadCredential":
			id, file, _ := strings.Cut(value, ":")
			secret, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(filepath.Join(credentials, id), secret, 0o400)
			}
			if err != nil {
				t.Fatal(err)
			}
		case "ExecStart":
			run = value
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+run)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append([]string{"CREDENTIALS_DIRECTORY=" + credentials, "STATE_DIRECTORY=" + t.TempDir()}, d.env...)
	var logs bytes.Buffer
	cmd.Stderr = &logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("it ended with %v\n%s", cmd.ProcessState, logs.String())
		}
	})
	servertest.Wait(t, "it does not answer", func() bool {
		health := exec.CommandContext(t.Context(), "curl", "-sf", d.names.Replace("https://limits.example.com:8443/healthz"))
		health.Env = d.env
		return health.Run() == nil
	})
}

// The commands of the page deploy a service that decides over TLS for whoever has the token, and for nobody else.
func TestDeployOverTheInternet(t *testing.T) {
	d := deploy(t)
	d.shell(t, d.blocks["sh"][0])
	d.verify(t)
	d.start(t)
	text := readFile(t, d.dir+"/etc/sash/token")
	token := strings.Fields(string(text))[1]
	if len(token) < 32 {
		t.Fatalf("the token is %q", token)
	}
	ask := d.blocks["sh"][1]
	status := func(script, token string) string {
		t.Helper()
		out := strings.TrimSpace(d.shell(t, script, "SASH_TOKEN="+token))
		return out[max(0, len(out)-3):]
	}
	var got []string
	for range 4 {
		got = append(got, status(ask, token))
	}
	if strings.Join(got, " ") != "200 200 200 429" {
		t.Errorf("with the token, at 3 in 5 seconds: %v", got)
	}
	const entries = `"entries":[{"key":"api","value":"search"}]`
	for name, c := range map[string]struct {
		token, want string
		change      []string
	}{
		"a wrong token":  {"wrong", "401", nil},
		"no token":       {"", "401", []string{`-H "Authorization: Bearer $SASH_TOKEN"`, ""}},
		"plain HTTP":     {token, "400", []string{"https://", "http://"}},
		"another domain": {token, "403", []string{`"domain":"pipeline"`, `"domain":"demo"`}},
		"a limit":        {token, "403", []string{"/v1/allow", "/json", entries, `"descriptors":[{` + entries + `,"limit":{"requests_per_unit":9,"unit":"SECOND"}}]`}},
		"a refund":       {token, "403", []string{"/v1/allow", "/json", entries, `"descriptors":[{` + entries + `,"is_negative_hits":true}]`}},
	} {
		if got := status(strings.NewReplacer(c.change...).Replace(ask), c.token); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	stranger := exec.CommandContext(t.Context(), "curl", "-s", d.names.Replace("https://limits.example.com:8443/healthz"))
	stranger.Env = []string{"PATH=/usr/bin:/bin"}
	if err := stranger.Run(); err == nil {
		t.Error("a client that does not trust the authority connects")
	}
	file := tempFile(t, "pages.php", d.names.Replace(d.blocks["php"][0]))
	if out := d.shell(t, "php "+file, "SASH_TOKEN="+token); out != "page 1\npage 2\npage 3\npage 4\npage 5\n" {
		t.Errorf("PHP printed %s", out)
	}
}
