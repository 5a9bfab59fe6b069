//go:build languages

package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const languageToken = "token-of-the-clients-in-all-languages"

// A language is a client of Redis: a program that gets the name of a subject and a protocol, and prints four lines.
type language struct {
	name      string
	protocols string
	command   []string
}

// languages are those that make test-languages has installed. Jedis is there where Maven and a JDK are.
func languages(t *testing.T) []language {
	t.Helper()
	here, err := filepath.Abs("testdata/languages")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(here, name) }
	all := []language{
		{"redis-cli", "23", []string{"sh", file("client.sh")}},
		{"php-redis", "2", []string{"php", file("client.php")}},
		{"ruby-redis", "2", []string{"ruby", file("client.rb")}},
		{"python3-redis", "2", []string{"/usr/bin/python3", file("client.py")}}, // Debian's, which has the package
		{"ioredis", "2", []string{"node", file("client.js")}},
	}
	if jars := os.Getenv("SASH_JEDIS"); jars != "" {
		all = append(all, language{"Jedis", "23", []string{"java", "-cp", jars + "/*", file("Client.java")}})
	}
	return all
}

// serveRESP runs sash serve in this process with the RESP port, and returns its port.
func serveRESP(t *testing.T, limits, access string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"limits.yaml": limits, "access.yaml": access} {
		put(t, filepath.Join(dir, name), text)
	}
	p := serve(t, "--resp-addr", "127.0.0.1:0", "--config", filepath.Join(dir, "limits.yaml"), "--access", filepath.Join(dir, "access.yaml"))
	port := respPort.FindStringSubmatch(p.greets)
	if port == nil {
		t.Fatal(p.greets)
	}
	return port[1]
}

var respPort = regexp.MustCompile(`RESP +127\.0\.0\.1:(\d+):`)

const (
	languageRules    = "domain: web\ndescriptors:\n- {key: user, limits: [3/1h]}\n"
	wantOfLanguages  = "throttle 0 3 2 -1 60\nallowed 3\nerror ERR wrong number of arguments for 'sash.allow' command\n"
	deniedOfLanguage = "invalid username-password pair or user is disabled."
)

func languageAccess() string {
	sum := sha256.Sum256([]byte(languageToken))
	return "clients: [{name: till, tokens: [" + hex.EncodeToString(sum[:]) + "], allow: [decide, override]}]\n"
}

// Every client connects with a token, gets the five integers of CL.THROTTLE, is admitted exactly three times by a rule of
// three, and gets errors as errors.
func TestLanguagesAreClients(t *testing.T) {
	port := serveRESP(t, languageRules, languageAccess())
	for _, l := range languages(t) {
		for _, protocol := range l.protocols {
			t.Run(fmt.Sprintf("%s RESP%c", l.name, protocol), func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), l.command[0], append(l.command[1:], l.name+string(protocol), string(protocol))...)
				cmd.Env = append(os.Environ(), "SASH_PORT="+port, "SASH_TOKEN="+languageToken)
				cmd.Stderr = os.Stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				first, denied, _ := strings.Cut(string(out), "denied ")
				if first != wantOfLanguages || !strings.Contains(denied, deniedOfLanguage) {
					t.Errorf("it printed\n%s\nwant\n%sdenied …%s", out, wantOfLanguages, deniedOfLanguage)
				}
			})
		}
	}
}

// exampleOf returns a command that runs a program of examples/resp, over a service with the files that are there.
func exampleOf(t *testing.T, program ...string) *exec.Cmd {
	t.Helper()
	const dir = "../../../examples/resp"
	var texts [2]string
	for i, name := range []string{"limits.yaml", "access.yaml"} {
		text := readFile(t, filepath.Join(dir, name))
		texts[i] = string(text)
	}
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "SASH_PORT="+serveRESP(t, texts[0], texts[1]))
	return cmd
}

// Programs that wait for room end when all is done, in whatever order they print.
func TestLanguagesExamplesThatWait(t *testing.T) {
	for _, tt := range []struct {
		program string
		file    string
		lines   []string
	}{
		{"ruby", "job.rb", []string{"job 1 is done", "job 7 is done", "comes back"}},
		{"/usr/bin/python3", "crawler.py", []string{"page 1 is read", "page 5 is read"}},
		{"sh", "loop.sh", []string{"call 1", "call 5"}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			out, err := exampleOf(t, tt.program, tt.file).Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, line := range tt.lines {
				if !strings.Contains(string(out), line) {
					t.Errorf("it did not print %q:\n%s", line, out)
				}
			}
		})
	}
}

// Pages are shown five times, and then 429 says when to come back.
func TestLanguagesExamplesOfPages(t *testing.T) {
	for name, program := range map[string][]string{
		"PHP":     {"php", "-S", "127.0.0.1:" + freePort(t), "page.php"},
		"Express": {"node", "middleware.js"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exampleOf(t, program...)
			cmd.Env = append(cmd.Env, "PORT=0")
			port := startsOn(t, cmd)
			for call := 1; call <= 7; call++ {
				req := newRequest(t, http.MethodGet, "http://127.0.0.1:"+port+"/", http.NoBody)
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if want := map[bool]int{true: 200, false: 429}[call <= 5]; res.StatusCode != want || (want == 429) != (res.Header.Get("Retry-After") != "") {
					t.Errorf("request %d: %d, Retry-After %q", call, res.StatusCode, res.Header.Get("Retry-After"))
				}
			}
		})
	}
}

// freePort returns a port that is free now.
func freePort(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// startsOn starts a server that prints its port at the end of a line with "127.0.0.1:PORT" or "listening on PORT", and
// ends it with the test.
func startsOn(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = read.Close()
	})
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		line := lines.Text()
		if _, port, ok := strings.Cut(line, "listening on "); ok {
			go drain(lines)
			return port
		}
		if _, rest, ok := strings.Cut(line, "http://127.0.0.1:"); ok {
			go drain(lines)
			return strings.TrimSuffix(strings.Fields(rest)[0], ")")
		}
	}
	t.Fatal("it did not say where it listens")
	return ""
}

// drain reads what a program prints, so that it does not wait.
func drain(lines *bufio.Scanner) {
	for lines.Scan() {
	}
}

// What the diffs of docs/migrating leave is admitted as often as the limits say, and refused with the time to retry.
func TestLanguagesMigrating(t *testing.T) {
	const dir = "../../../examples/migrating"
	p := serve(t, "--resp-addr", "127.0.0.1:0", "--config", dir+"/limits.yaml")
	port := respPort.FindStringSubmatch(p.greets)
	if port == nil {
		t.Fatal(p.greets)
	}
	left := func(form string) (lines string) {
		for n := 9; n >= 0; n-- {
			lines += fmt.Sprintf(form, n)
		}
		return lines
	}
	programs := map[string][]string{
		strings.Repeat("served\n", 5) + strings.Repeat("429 true\n", 2):                   {"node", "rate-limiter-flexible.js"},
		left("200 %d left\n") + strings.Repeat("429 Unable to process at this time\n", 2): {"node", "upstash.js"},
	}
	if jars := os.Getenv("SASH_JEDIS"); jars != "" {
		programs[left("served, %d left\n")+strings.Repeat("limited for more than 5 s\n", 2)] = []string{"java", "-cp", jars + "/*", "Bucket4j.java"}
	}
	for want, program := range programs {
		cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		cmd.Env = append(os.Environ(), "SASH_PORT="+port[1], "SASH_URL="+p.url)
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", strings.Join(program, " "), err, out, want)
		}
	}
}
