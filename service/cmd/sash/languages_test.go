//go:build languages

package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

const languageToken = "token-of-the-clients-in-all-languages"

// A language is a client of Redis: a program that gets the name of a subject and a protocol, and prints four lines.
type language struct {
	name, protocols string
	command         []string // and the file
}

// languages are those that make test-languages has installed. Jedis is there where Maven and a JDK are.
func languages() []language {
	all := []language{
		{"redis-cli", "23", []string{"sh", "client.sh"}},
		{"php-redis", "2", []string{"php", "client.php"}},
		{"ruby-redis", "2", []string{"ruby", "client.rb"}},
		{"python3-redis", "2", []string{"/usr/bin/python3", "client.py"}}, // Debian's, which has the package
		{"ioredis", "2", []string{"node", "client.js"}},
	}
	if jars := os.Getenv("SASH_JEDIS"); jars != "" {
		all = append(all, language{"Jedis", "23", []string{"java", "-cp", jars + "/*", "Client.java"}})
	}
	return all
}

var respPort = regexp.MustCompile(`RESP +127\.0\.0\.1:(\d+):`)

// program returns a program in a directory, for a service with the RESP port and limits.
func program(t *testing.T, dir string, command []string, args ...string) *exec.Cmd {
	t.Helper()
	p := serve(t, append([]string{"--resp-addr", "127.0.0.1:0"}, args...)...)
	port := respPort.FindStringSubmatch(p.greets)
	if port == nil {
		t.Fatal(p.greets)
	}
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "SASH_PORT="+port[1], "SASH_URL="+p.url, "SASH_TOKEN="+languageToken)
	return cmd
}

// Every client connects with a token, gets the five integers of CL.THROTTLE, is admitted exactly three times by a rule of
// three, sends a transaction and a script, and gets errors as errors.
func TestLanguagesAreClients(t *testing.T) {
	const want = "throttle 0 3 2 -1 60\nallowed 3\nmulti 0 1 1\nerror ERR wrong number of arguments for 'sash.allow' command\ndenied "
	access := fmt.Sprintf("clients: [{name: till, tokens: [%x], allow: [decide, override]}]\n", sha256.Sum256([]byte(languageToken)))
	for _, l := range languages() {
		for _, protocol := range l.protocols {
			cmd := program(t, "testdata/languages", append(l.command, l.name+string(protocol), string(protocol)),
				"--config", tempFile(t, "limits.yaml", "domain: web\ndescriptors:\n- {key: user, limits: [3/1h]}\n"), "--access", tempFile(t, "access.yaml", access))
			out, err := cmd.Output()
			if err != nil || !strings.HasPrefix(string(out), want) || !strings.Contains(string(out),
				"invalid username-password pair or user is disabled.") {
				t.Errorf("%s by RESP%c: %v, it printed\n%s\nwant\n%s…", l.name, protocol, err, out, want)
			}
		}
	}
}

// exampleOf returns a program of examples/resp, over a service with the files that are there.
func exampleOf(t *testing.T, command ...string) *exec.Cmd {
	t.Helper()
	const dir = examples + "/resp"
	return program(t, dir, command, "--config", dir+"/limits.yaml", "--access", dir+"/access.yaml")
}

// Programs that wait for room end when all is done, in whatever order they print.
func TestLanguagesExamplesThatWait(t *testing.T) {
	for _, tt := range [][]string{ // the command, the file and the lines
		{"ruby", "job.rb", "job 1 is done", "job 7 is done", "comes back"},
		{"/usr/bin/python3", "crawler.py", "page 1 is read", "page 5 is read"},
		{today(), "crawler.py", "page 1 is read", "page 5 is read"},
		{"sh", "loop.sh", "call 1", "call 5"},
	} {
		out, err := exampleOf(t, tt[:2]...).Output()
		for _, line := range tt[2:] {
			if err != nil || !strings.Contains(string(out), line) {
				t.Errorf("%s: %v, it did not print %q:\n%s", tt[1], err, line, out)
			}
		}
	}
}

var pages = [][]string{{"php", "-S", "", "page.php"}, {"node", "middleware.js"}}

var serving = regexp.MustCompile(`(?:http://127\.0\.0\.1:|listening on )(\d+)`)

// servePage starts an example that shows pages, and returns its URL.
func servePage(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	if cmd.Args[1] == "-S" {
		cmd.Args[2] = freeAddress(t, 1)
	}
	said := &servertest.Log{}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(cmd.Env, "PORT=0"), said, said
	servertest.Check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var port []string
	servertest.Wait(t, cmd.Args[0]+" did not say where it listens", func() bool {
		port = serving.FindStringSubmatch(said.String())
		return port != nil
	})
	return "http://127.0.0.1:" + port[1] + "/"
}

// Pages are shown within a second while the service is down, silent, or does not decide.
func TestLanguagesExamplesFailOpen(t *testing.T) {
	silent := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // connections wait in its queue
	defer silent.Close()
	down := freeAddress(t, 1)
	for _, command := range pages {
		for name, addr := range map[string]string{"down": down, "silent": silent.Addr().String(), "undecided": ""} {
			cmd := exampleOf(t, command...)
			if cmd.Env = append(cmd.Env, "SASH_PORT="+portOf(addr)); addr == "" { // the last one counts
				cmd = program(t, examples+"/resp", command, "--config", examples+"/resp/limits.yaml", "--access", examples+"/resp/access.yaml", "--redis", down)
			}
			url := servePage(t, cmd)
			for range 3 {
				began := time.Now()
				if res, _ := send(t, "GET", url, ""); res.StatusCode != 200 || time.Since(began) > time.Second {
					t.Errorf("%s, the service is %s: %d after %v", command[0], name, res.StatusCode, time.Since(began))
				}
			}
		}
	}
}

// today returns a Python with the redis-py of today; Debian's is older.
func today() string { return os.Getenv("SASH_PYTHON") }

// Pages are shown five times, and then 429 says when to come back.
func TestLanguagesExamplesOfPages(t *testing.T) {
	for _, command := range pages {
		url := servePage(t, exampleOf(t, command...))
		for call := 1; call <= 7; call++ {
			res, _ := send(t, "GET", url, "")
			if want := map[bool]int{true: 200, false: 429}[call <= 5]; res.StatusCode != want ||
				(want == 429) != (res.Header.Get("Retry-After") != "") {
				t.Errorf("%s, request %d: %d, Retry-After %q", command[0], call, res.StatusCode, res.Header.Get("Retry-After"))
			}
		}
	}
}

// What the diffs of docs/migrating leave is admitted as often as the limits say, and refused with the time to retry.
func TestLanguagesMigrating(t *testing.T) {
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
	dir := filepath.Join(examples, "migrating")
	for want, command := range programs {
		if out, err := program(t, dir, command, "--config", dir+"/limits.yaml").Output(); err != nil || string(out) != want {
			t.Errorf("%v: %v\n%s\nwant\n%s", command, err, out, want)
		}
	}
}
