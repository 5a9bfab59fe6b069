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
	"example.com/sash/service/internal/servertest"
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
			"120 requests of 1 network in 1m59s, from 2026-10-24T12:00:00Z to 2026-10-24T12:01:59Z\n" +
			"Verdict: do not trust the numbers below before this is mended (3 warnings).\nwarning: "
		if !strings.HasPrefix(out, want) {
			t.Errorf("%v:\n%s", command, out)
		}
		_, out, _ = sash(t, append(command, "--hide-clients", log)...)
		if !strings.Contains(out, "\nA client is the address, IPv6 by its /64 (--key client).\n") {
			t.Errorf("%v, hidden:\n%s", command, out)
		}
	}
	if code, u := understand(t, log); code != 0 || u.Format != "combined" || u.Key != "client" || u.Client != "the address, IPv6 by its /64" || len(u.Examples) != 3 || u.signs() != "ends short" {
		t.Errorf("exit %d, %+v", code, u)
	}
}

// A common log raises no alarm, and what is misread does, with an exit code if that is wanted.
func TestWarningsOfMisreadLogs(t *testing.T) {
	dir := t.TempDir()
	csv := func(name string, line func(i int) string) string {
		text := "start_time,remote_address,forwarded_for\n"
		if !strings.Contains(line(0), ",2") {
			text = "start_time,remote_address\n"
		}
		for i := range 500 {
			text += line(i) + "\n"
		}
		put(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	at := func(i int) int64 { return noon.Unix() + int64(i)*200 } // a day and more
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(logLines(noon, 5000, 50)))
	_ = w.Close()
	cut := filepath.Join(dir, "cut.gz")
	put(t, cut, packed.String()[:packed.Len()/2])
	address := func(i int) string { return fmt.Sprintf("%d,192.0.2.%d", at(i), i%20) }
	broken := func(lines int) func(i int) string {
		return func(i int) string { return address(i) + strings.Repeat(",x", (lines+499-i)/500) }
	}
	late := func(i int) string { return fmt.Sprintf("%d,192.0.2.%d", at(i)-int64(i/499*1000), i%20) }
	nginx := func(name, took string, from, ended int) string { // some of the lines without a duration
		text := ""
		for i := range 500 {
			one := took
			if i >= from && i < from+ended {
				one = "-"
			}
			text += fmt.Sprintf(`{"msec":"%d","remote_addr":"192.0.2.%d","status":200,"request_time":"%s"}`+"\n", at(i), i%20, one)
		}
		put(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	behind := func(name string, lines, peers int) string {
		return csv(name, func(i int) string {
			if i >= lines {
				return fmt.Sprintf("%d,192.0.2.%d,-", at(i), i%20)
			}
			return fmt.Sprintf("%d,198.51.%d.%d,203.0.113.%d", at(i), 100+i%peers/200, i%peers%200, i%150)
		})
	}
	for _, tt := range []struct {
		sign, says string // the warning, and what mends it
		args       []string
	}{
		{"", "", []string{csv("fine", address)}},
		{"not-addresses", "--key", []string{csv("names", func(i int) string { return fmt.Sprintf("%d,user-%d", at(i), i%20) })}},
		{"damaged", "Copy the file again", []string{csv("fine2", address), cut}},
		{"", "", []string{csv("fewbroken", broken(5))}},
		{"broken", "6 (1.20%) of 500 lines", []string{csv("broken", broken(6))}},
		{"", "", []string{nginx("took", "0.5", 400, 5)}},
		{"ends", "$request_time", []string{nginx("ends", "0.5", 400, 100)}},
		{"disorder", "1 of 500 lines are out of order", []string{csv("late", late)}},
		{"short", "Name the files before it too, the older files.", []string{csv("short.csv", func(i int) string { return fmt.Sprintf("%d,192.0.2.%d", noon.Unix()+int64(i)*165, i%20) })}},
		{"twice", "has the same 500 requests as ", []string{csv("fine3", address), csv("copy", address)}},
		{"twice", "such as by sort -u.", []string{csv("doubled", func(i int) string { return address(i) + "\n" + address(i) })}},
		{"addresses", "25 of 500 lines have no remote_address and do not count, so limits come out too low. Name the field that has it: " +
			"--field remote_address=NAME", []string{csv("nobody", func(i int) string { return strings.Replace(address(i), "192.0.2.0", "-", 1) })}},
		{"", "", []string{behind("few", 50, 17)}},
		{"proxies", "51 of 500 lines", []string{behind("proxies", 51, 17)}},
		{"proxies", "from 300 peers. If these are your proxies, all who are behind one count as one client, and limits come out far too high: " +
			"--trusted-proxies 198.51.100.0/24,198.51.101.0/24", []string{behind("cdn", 500, 300)}},
		{"proxies", "--trusted-proxies 198.51.100.0/24,198.51.102.0/24", []string{"--trusted-proxies", "198.51.101.0/24", behind("cdn2", 500, 450)}},
		{"", "", []string{"--key", "forwarded_for", behind("cdn3", 500, 300)}},
		{"", "", []string{"--trusted-proxies", "198.51.100.0/24,198.51.101.0/24", filepath.Join(dir, "cdn")}},
	} {
		want := 0
		if tt.sign != "" {
			want = 3
		}
		code, u := understand(t, append(tt.args, "--strict")...)
		signs := u.signs()
		if tt.sign == "damaged" {
			signs = strings.ReplaceAll(signs, "disorder ", "")
		}
		if code != want || !strings.Contains(" "+signs+" ", " "+tt.sign+" ") && signs != tt.sign || tt.sign == "" && signs != "" {
			t.Errorf("%v: exit %d, %+v", tt.args, code, u.Warnings)
		}
		if code, _ := understand(t, tt.args...); code != 0 {
			t.Errorf("%v, not strict: exit %d", tt.args, code)
		}
		code, out, _ := sash(t, append([]string{"suggest", "--strict"}, tt.args...)...)
		verdict := strings.Index(out, "\nVerdict: ")
		if code != want || verdict < 0 || verdict > strings.Index(out, "\nAt most") || strings.Contains(out, "\nwarning: ") != (tt.sign != "") || !strings.Contains(out, tt.says) {
			t.Errorf("%v: exit %d\n%s", tt.args, code, out)
		}
	}
	if _, u := understand(t, "--hide-clients", filepath.Join(dir, "names")); !strings.Contains(u.signs(), "not-addresses") || strings.Contains(fmt.Sprint(u.Warnings), "user-") {
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
	if code != 3 || u.signs() != "ends short" || u.Requests != 150 || u.Late != 0 || len(u.Files) != 3 || u.Files[2].Requests != 50 {
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

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	return servertest.Must(os.ReadFile(name))(t)
}

func put(t *testing.T, name, text string) {
	t.Helper()
	servertest.Check(t, os.WriteFile(name, []byte(text), 0o600))
}

func tempFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	put(t, file, text)
	return file
}
