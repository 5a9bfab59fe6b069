package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/cli"
	"example.com/sash/service/internal/logs"
)

// logLines returns requests of the sample's kind: one each second, by clients in turn.
func logLines(from time.Time, n, clients int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "192.0.2.%d - - [%s] \"GET /%d HTTP/1.1\" 200 7\n", i%clients, from.Add(time.Duration(i)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), i)
	}
	return text.String()
}

var noon = time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)

// An understood is the part of an answer in JSON that says what was read.
type understood struct {
	Requests, Broken int64
	Late             int64 `json:"out_of_order"`
	Format           string
	Key, Client      string
	Examples         []string `json:"client_examples"`
	Notes            []string
	Files            []struct {
		Name, Damaged string
		Requests      int64
	}
	Warnings []struct{ Sign, Text string } `json:"log_warnings"`
}

func (u understood) signs() string {
	var all []string
	for _, w := range u.Warnings {
		all = append(all, w.Sign)
	}
	return strings.Join(all, " ")
}

func understand(t *testing.T, args ...string) (int, understood) {
	t.Helper()
	code, out, failed := sash(t, append([]string{"replay", "--json", "--try", "10/1m"}, args...)...)
	var u understood
	if err := json.Unmarshal([]byte(out), &u); err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, failed)
	}
	return code, u
}

func TestTheAnswerBeginsWithWhatWasUnderstood(t *testing.T) {
	log := filepath.Join(t.TempDir(), "access.log")
	put(t, log, logLines(noon, 120, 7)+"no request\n")
	for _, command := range [][]string{{"replay", "--try", "10/1m"}, {"suggest"}} {
		_, out, _ := sash(t, append(command, "--key", "prefix(remote_address, 28)", log)...)
		want := "Read as combined: 121 lines of " + log + ", 1 (0.83%) broken.\n" +
			"A client is the network of the address (--key 'prefix(remote_address, 28)'), such as 192.0.2.0/28.\n" +
			"120 requests of 1 network in 1m59s, from 2026-10-24T12:00:00Z to 2026-10-24T12:01:59Z\n"
		if !strings.HasPrefix(out, want) {
			t.Errorf("%v:\n%s", command, out)
		}
		_, out, _ = sash(t, append(command, "--hide-clients", log)...)
		if !strings.Contains(out, "\nA client is the address, IPv6 by its /64 (--key client).\n") {
			t.Errorf("%v, hidden:\n%s", command, out)
		}
	}
	if code, u := understand(t, log); code != 0 || u.Format != "combined" || u.Key != "client" || u.Client != "the address, IPv6 by its /64" || len(u.Examples) != 3 || len(u.Warnings) != 0 {
		t.Errorf("exit %d, %+v", code, u)
	}
}

// A common log raises no alarm, and what is misread does, with an exit code if that is wanted.
func TestWarningsOfMisreadLogs(t *testing.T) {
	dir := t.TempDir()
	csv := func(name string, line func(i int) string) string {
		text := "time,remote_address\n"
		for i := range 500 {
			text += line(i) + "\n"
		}
		put(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	if code, u := understand(t, "--strict", sampleLog); code != 0 || len(u.Warnings) != 0 {
		t.Errorf("the sample: exit %d, %+v", code, u.Warnings)
	}
	at := func(i int) int64 { return noon.Unix() + int64(i) }
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(logLines(noon, 5000, 50)))
	_ = w.Close()
	cut := filepath.Join(dir, "cut.gz")
	put(t, cut, packed.String()[:packed.Len()/2])
	for sign, args := range map[string][]string{
		"":              {csv("fine", func(i int) string { return fmt.Sprintf("%d,192.0.2.%d", at(i), i%20) })},
		"not-addresses": {csv("names", func(i int) string { return fmt.Sprintf("%d,user-%d", at(i), i%20) })},
		"damaged":       {cut},
		"broken":        {csv("most", func(i int) string { return fmt.Sprintf("%d,192.0.2.%d%s", at(i), i%20, strings.Repeat(",x", i/249)) })},
	} {
		want := 0
		if sign != "" {
			want = 3
		}
		if code, u := understand(t, append(args, "--strict")...); code != want || u.signs() != sign {
			t.Errorf("%s: exit %d, %+v", sign, code, u.Warnings)
		}
		if code, _ := understand(t, args...); code != 0 {
			t.Errorf("%s, not strict: exit %d", sign, code)
		}
		_, out, _ := sash(t, append([]string{"suggest"}, args...)...)
		if strings.Contains(out, "\nwarning: ") != (sign != "") {
			t.Errorf("%s:\n%s", sign, out)
		}
	}
	if _, u := understand(t, "--hide-clients", filepath.Join(dir, "names")); strings.Contains(u.Warnings[0].Text, "user-") {
		t.Errorf("a hidden client: %+v", u.Warnings)
	}
}

// Rotated files count in any order.
func TestRotatedFilesInAnyOrder(t *testing.T) {
	dir := t.TempDir()
	name := func(name string) string { return filepath.Join(dir, name) }
	for i, file := range []string{"access.log.2", "access.log.1", "access.log"} {
		put(t, name(file), logLines(noon.Add(time.Duration(i)*time.Hour), 50, 5))
	}
	code, u := understand(t, "--strict", name("access.log.1"), name("access.log"), name("access.log.2"))
	if code != 0 || u.Requests != 150 || u.Late != 0 || len(u.Files) != 3 || u.Files[2].Requests != 50 {
		t.Errorf("exit %d, %+v", code, u)
	}
	put(t, name("error.log"), "2026/10/24 12:00:00 [error] 7#7: something\n")
	for say, args := range map[string][]string{
		"error.log: the first lines have no known format": {name("access.log"), name("error.log")},
		"access.log is named twice":                       {name("access.log"), name("access.log")},
		"is a directory":                                  {dir},
	} {
		if code, out, failed := sash(t, append([]string{"suggest"}, args...)...); code != 2 || out != "" || !strings.Contains(failed, say) {
			t.Errorf("%s: exit %d, %s%s", say, code, out, failed)
		}
	}
}

const (
	repository = "../../.."
	wholeLog   = "../../../../shared/data/apache_access.log" // beside the repository
	sampleLog  = "../../testdata/access_log_sample.log"
)

// As sash-logs and as sash this test binary is that command.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "sash-logs":
		main()
	case "sash":
		os.Exit(cli.Run(cli.Signals(), cli.Args(os.Args), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
	}
	os.Exit(m.Run())
}

// sash runs a command in this process. Its standard input is empty.
func sash(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return sashReads(t, strings.NewReader(""), args...)
}

func sashReads(t *testing.T, in io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = logs.Run(args, in, &out, &err)
	return code, out.String(), err.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	return must(os.ReadFile(name))
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tempFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	put(t, file, text)
	return file
}
