//go:build deploy

package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// The binary of the image runs in a directory that holds nothing else: no library, no zones, no shell. The test does not
// need a container engine, so it does not run the Dockerfile itself.
func TestDeployImageNeedsNothingBesideIt(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("chroot needs root: run make test-deploy as root")
	}
	if !strings.Contains(string(readFile(t, repository+"/Dockerfile")), "\nFROM scratch\nCOPY sash /sash\nCOPY bin /bin\n") {
		t.Fatal("the Dockerfile does not copy the binary and its other name into an empty image")
	}
	env, _, command := image(t)
	if out, err := exec.CommandContext(t.Context(), "make", "-C", repository, "static").CombinedOutput(); err != nil {
		t.Fatalf("make static: %v\n%s", err, out)
	}
	if to, err := os.Readlink(repository + "/bin/image/bin/ratelimit"); err != nil || to != "../sash" {
		t.Errorf("/bin/ratelimit is a link to %q: %v", to, err)
	}
	static := readFile(t, repository+"/bin/image/sash")
	if most := 25_000_000; len(static) > most {
		t.Errorf("the binary has %d bytes, more than %d", len(static), most)
	}
	root := t.TempDir()
	put(t, root+"/sash", string(static))
	put(t, root+"/etc/sash/limits.yaml", "domain: d\ndescriptors:\n  - key: k\n    limits: [\"1/day@America/Los_Angeles\"]\n")
	if out, err := exec.Command("sh", "-ec", `chmod -R a+rX "$0"; chmod 755 "$0/sash"`, root).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	parts := servertest.Must(elf.Open(root + "/sash"))(t)
	defer parts.Close()
	for _, part := range parts.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	cmd := exec.Command("/sash", append(command, "--json=false", "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0",
		"--admin-addr", "127.0.0.1:0", "--drain-delay", "0s")...)
	cmd.Dir, cmd.Env = "/", env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	p := run(t, cmd)
	for i, want := range []int{200, 429} {
		if got, said := post(t, p.url+"/v1/allow", subject("d", "k", "v")); got != want {
			t.Errorf("call %d: %d %v, want %d", i+1, got, said, want)
		}
	}
	p.stopped(t)
}

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
	_, section, _ := strings.Cut(string(readFile(t, repository+"/docs/security.md")), "\n## Over the internet\n")
	section, _, _ = strings.Cut(section, "\n## ")
	ca := certify(t, "localhost")
	d := &deployment{dir: ca.dir, blocks: make(map[string][]string)}
	for i, part := range strings.Split(section, "```") {
		if language, code, _ := strings.Cut(part, "\n"); i%2 == 1 {
			d.blocks[language] = append(d.blocks[language], code)
		}
	}
	if len(d.blocks["sh"]) != 2 || len(d.blocks["php"]) != 1 {
		t.Fatalf("docs/security.md has other blocks: %v", d.blocks)
	}
	free := ":" + portOf(freeAddress(t, 1))
	d.names = strings.NewReplacer(
		"limits.example.com:8443", "localhost"+free, "--addr :8443", "--admin-addr 127.0.0.1:0 --addr "+free,
		"/etc/letsencrypt/live/limits.example.com", d.dir, "/etc/", d.dir+"/etc/", "/usr/local/bin/sash", binary,
		"systemctl daemon-reload && systemctl restart sash", "true",
	)
	for from, to := range map[string]string{"localhost.pem": "fullchain.pem", "localhost.key": "privkey.pem"} {
		servertest.Check(t, os.Rename(ca.file(from), ca.file(to)))
	}
	d.env = []string{"PATH=" + filepath.Dir(binary) + ":/usr/bin:/bin", "SSL_CERT_FILE=" + ca.file("authority.pem")}
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

// start does what systemd does with the unit: it puts the credentials into a directory, and runs ExecStart.
func (d *deployment) start(t *testing.T) {
	t.Helper()
	text := readFile(t, d.dir+"/etc/systemd/system/sash.service.d/internet.conf")
	credentials, command := t.TempDir(), ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "LoadCredential":
			id, file, _ := strings.Cut(value, ":")
			put(t, filepath.Join(credentials, id), string(readFile(t, file)))
		case "ExecStart":
			command = value
		}
	}
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Env = append([]string{"CREDENTIALS_DIRECTORY=" + credentials}, d.env...)
	p := run(t, cmd)
	t.Cleanup(func() { p.stopped(t) })
	servertest.Wait(t, "it does not answer", func() bool { return d.curl("https://limits.example.com:8443/healthz", d.env...) == nil })
}

// curl requests a path, and fails unless the answer is 200.
func (d *deployment) curl(url string, env ...string) error {
	cmd := exec.Command("curl", "-sf", d.names.Replace(url))
	cmd.Env = env
	return cmd.Run()
}

// The commands of the page deploy a service that decides over TLS for whoever has the token, and for nobody else.
func TestDeployOverTheInternet(t *testing.T) {
	d := deploy(t)
	d.shell(t, d.blocks["sh"][0])
	units := d.dir + "/etc/systemd/system"
	put(t, units+"/sash.service", d.names.Replace(string(readFile(t, examples+"/systemd/sash.service"))))
	verify := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "sash.service") // every line is accepted
	verify.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+units+":")
	if out, err := verify.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	d.start(t)
	token := strings.Fields(string(readFile(t, d.dir+"/etc/sash/token")))[1]
	if len(token) < 32 {
		t.Fatalf("the token is %q", token)
	}
	ask := d.blocks["sh"][1]
	for i, want := range []string{"200", "200", "200", "429"} { // at 3 in 5 seconds
		if out := strings.TrimSpace(d.shell(t, ask, "SASH_TOKEN="+token)); !strings.HasSuffix(out, want) {
			t.Errorf("call %d with the token: %s, want %s", i+1, out, want)
		}
	}
	if out := d.shell(t, ask, "SASH_TOKEN=wrong"); !strings.HasSuffix(strings.TrimSpace(out), "401") {
		t.Errorf("a wrong token: %s", out)
	}
	if d.curl("https://limits.example.com:8443/healthz", "PATH=/usr/bin:/bin") == nil {
		t.Error("a client that does not trust the authority connects")
	}
	file := tempFile(t, "pages.php", d.names.Replace(d.blocks["php"][0]))
	if out := d.shell(t, "php "+file, "SASH_TOKEN="+token); out != "page 1\npage 2\npage 3\npage 4\npage 5\n" {
		t.Errorf("PHP printed %s", out)
	}
}
