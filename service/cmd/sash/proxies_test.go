//go:build proxies

package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

// A proxy is one of the examples, and how it is started.
type proxy struct {
	name    string // its directory
	config  string // the file to start with
	command func(dir, config string) []string
	short   bool // its answers do not have what is left
}

var proxies = []proxy{
	{name: "nginx", config: "nginx.conf", command: func(dir, config string) []string {
		return []string{"nginx", "-p", dir, "-c", config}
	}},
	{name: "caddy", config: "Caddyfile", command: caddy},
	{name: "caddy", config: "forward_auth.Caddyfile", command: caddy, short: true},
	{name: "haproxy", config: "haproxy.cfg", command: func(_, config string) []string {
		return []string{"haproxy", "-db", "-f", config}
	}},
}

func caddy(_, config string) []string {
	return []string{"caddy", "run", "--adapter", "caddyfile", "--config", config}
}

// opened returns the configuration that passes requests while Sash is away, as its comments describe.
func opened(t *testing.T, name, config string) string {
	t.Helper()
	comment := map[string]string{"nginx": "#error_page", "caddy": "#reverse_proxy"}[name]
	gone := map[string][]string{
		"caddy":   {"header Retry-After 1", `respond "The rate limit`},
		"haproxy": {"http-request set-var(txn.sash_retry_after)", "http-request return status 503"},
	}[name]
	var out []string
	found := 0
	for line := range strings.Lines(config) {
		text := strings.TrimSpace(line)
		switch {
		case comment != "" && strings.HasPrefix(text, comment):
			line = strings.Replace(line, "#", "", 1)
			found++
		case hasAnyPrefix(text, gone):
			line = ""
			found++
		}
		out = append(out, line)
	}
	if want := len(gone) + map[bool]int{true: 1}[comment != ""]; found != want {
		t.Fatalf("%d lines of %d that open the proxy were found", found, want)
	}
	return strings.Join(out, "")
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// read returns the example's configuration with the addresses of a test.
func (p *proxy) read(t *testing.T, listen, sash, application string) string {
	t.Helper()
	text := readFile(t, filepath.Join(examples, p.name, p.config))
	config := string(text)
	spaced := func(addr string) string { return strings.Replace(addr, ":", " ", 1) }
	for from, to := range map[string]string{"127.0.0.1:8000": listen, "127.0.0.1:8080": sash, "127.0.0.1:9000": application} {
		if !strings.Contains(config, from) && !strings.Contains(config, spaced(from)) {
			t.Fatalf("%s is not in %s", from, p.config)
		}
		config = strings.ReplaceAll(config, from, to)
		config = strings.ReplaceAll(config, spaced(from), spaced(to))
	}
	return config
}

// start runs the real proxy until the test ends, or until the returned function is called.
func (p *proxy) start(t *testing.T, listen, config string) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(examples, p.name))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, p.config)
	put(t, file, config)
	args := p.command(dir, file)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nginx has processes of its own
	log := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	stop = func() {
		_ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Errorf("%s does not end on SIGTERM", p.name)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, log)
		}
	})
	servertest.Wait(t, p.name+" does not listen", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended: %s", p.name, log)
		default:
		}
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return stop
}

// freeAddress returns an address that is free.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The browser keeps no connections, because the proxy at their other end may be gone.
var browser = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
