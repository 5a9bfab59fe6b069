package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.com/sash/service/internal/cli"
)

var update = flag.Bool("update", false, "write the golden reports")

// The reports are those in testdata, which `go test -update` writes.
func TestReports(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	for name, args := range map[string][]string{
		"replay.txt": {"replay", "--try", "10/1m", "--try", "5/10s,60/1h", "--algorithm", "sliding-log,fixed-window", "--worst", "3", sampleLog},
		"key.txt": {"replay", "--try", "3/1m", "--key", "prefix(remote_address, 16)", "--cost", `path endsWith ".png" ? 2 : 1`,
			"--where", "status < 400", "--route", "/presentations/{rest...}", sampleLog},
		"policy.txt":  {"replay", "--policy", "../../example.yaml", "--worst", "2", "--html", page, sampleLog},
		"suggest.txt": {"suggest", "--affect", "1%", sampleLog},
	} {
		code, out, err := sash(t, args...)
		if code != 0 || err != "" {
			t.Fatalf("%v: exit %d, %s", args, code, err)
		}
		file := filepath.Join("testdata", name)
		if *update {
			put(t, file, out)
		}
		if out != string(readFile(t, file)) {
			t.Errorf("the report is not that of %s (write it with -update, and read the difference):\n%s", file, out)
		}
	}
	// That of a policy has the course and the curve.
	text := string(readFile(t, page))
	if n := strings.Count(text, `<div class="plot"`); n != 2 || !strings.Contains(text, `id="demand"`) {
		t.Errorf("%d charts, want 2", n)
	}
}

// A log may come through a pipe, and broken lines are shown.
func TestReplayReadsStandardInputAndBrokenLines(t *testing.T) {
	text := readFile(t, sampleLog)
	files := regexp.MustCompile(`"files":\[[^]]*\]|Name the files[^"]*`) // all but the names of files is the same
	_, want, _ := sash(t, "replay", "--try", "10/1m", "--json", sampleLog)
	want = files.ReplaceAllString(want, "")
	if code, got, _ := sashReads(t, bytes.NewReader(text), "replay", "--try", "10/1m", "--json"); files.ReplaceAllString(got, "") != want || code != 0 {
		t.Errorf("standard input: exit %d, %s", code, got)
	}
	broken := tempFile(t, "broken", "first\n"+string(text)+"192.0.2.99 - - [no time]\n")
	code, got, _ := sash(t, "replay", "--try", "10/1m", broken)
	if code != 0 || !strings.Contains(got, "2 lines are broken and were left out; the first:\n  "+broken+":1: not of the form") {
		t.Errorf("broken lines: exit %d, %s", code, got)
	}
}

func TestReplayConditions(t *testing.T) {
	for condition, want := range map[string]int{
		"clients-limited>0": 1, "clients-limited > 99%": 0, "refused>=0": 1, "refused>100%": 0, "broken>0": 0, "broken>=0%": 1,
	} {
		code, out, err := sash(t, "replay", "--try", "10/1m", "--fail-if", condition, "--json", sampleLog)
		if code != want || !strings.HasPrefix(out, `{"requests":`) || (want == 1) != strings.Contains(err, condition+" holds for 10/1m by sliding-log") {
			t.Errorf("%s: exit %d, want %d; %s", condition, code, want, err)
		}
		if code, _, err = sash(t, "suggest", "--affect", "1%", "--fail-if", condition, sampleLog); code != min(want, strings.Count(condition, "=")) {
			t.Errorf("suggest, %s: exit %d, %s", condition, code, err)
		}
	}
}

func TestReplayMistakes(t *testing.T) {
	empty := tempFile(t, "empty", "")
	try := []string{"replay", "--try", "10/1m"}
	for name, tt := range map[string]struct {
		args []string
		say  string
	}{
		"no limits":          {[]string{"replay", sampleLog}, "--try is missing"},
		"no such file":       {append(try, "nothing.log"), "nothing.log: no such file"},
		"an empty log":       {append(try, empty), "the log is empty"},
		"a wrong cost":       {append(try, "--cost", "-bytes - 1", sampleLog), "it must be 0 to"},
		"nothing left":       {append(try, "--where", "status == 999", sampleLog), "--where leaves out"},
		"a wrong condition":  {append(try, "--fail-if", "clients>1", sampleLog), "write clients-limited, refused or broken"},
		"two kinds":          {append(try, "--policy", "../../example.yaml", sampleLog), "charge different keys"},
		"a wrong entry":      {[]string{"replay", "--policy", "../../example.yaml", "--entry", "x", sampleLog}, "write the key of a descriptor"},
		"a key, in vain":     {[]string{"replay", "--policy", "../../example.yaml", "--key", "user", sampleLog}, "--key is for --try"},
		"windows, in vain":   {[]string{"replay", "--policy", "../../example.yaml", "--algorithm", "gcra", sampleLog}, "--algorithm is for --try"},
		"an entry, in vain":  {append(try, "--entry", "user=user", sampleLog), "--entry is for --policy"},
		"no algorithm":       {append(try, "--algorithm", "", "--fail-if", "refused>=0", sampleLog), "at least one --algorithm"},
		"a share":            {[]string{"suggest", "--affect", "many", sampleLog}, "such as 0.1%"},
		"all may be refused": {[]string{"suggest", "--affect", "100%", sampleLog}, "below 100%"},
		"windows":            {[]string{"suggest", "--burst", "2h", sampleLog}, "must be shorter"},
		"a window":           {[]string{"suggest", "--burst", "soon", sampleLog}, "write the length of a window"},
	} {
		code, out, err := sash(t, tt.args...)
		if code != 2 || out != "" || !strings.HasPrefix(err, "sash-logs: ") || !strings.Contains(err, tt.say) {
			t.Errorf("%s: exit %d, %q, %q; want 2 and %q", name, code, out, err, tt.say)
		}
	}
}

// A configuration is replayed as it is, and with its candidates promoted. Requests without a limit are not counted;
// those that a rule always refuses are.
func TestReplayOfAPolicyWithCandidates(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	put(t, file, "domain: d\ndescriptors:\n- {key: user, value: free, rate_limit: {unlimited: true}}\n"+
		"- {key: user, value: never, rate_limit: {unit: hour, requests_per_unit: 0}}\n"+
		"- key: user\n  limits: [8/1h]\n  candidate: {limits: [3/1h], enforce_percent: 50}\n")
	log := filepath.Join(dir, "log.csv")
	var text strings.Builder
	text.WriteString("time,user\n")
	for n := range 10 {
		for _, user := range []string{"ann", "bob", "free", "never"} {
			text.WriteString(strconv.Itoa(1_431_846_000+n) + "," + user + "\n")
		}
	}
	put(t, log, text.String())
	var said struct {
		Requests, Unlimited int
		Candidates          []struct {
			Policy  string
			Refused int
		}
	}
	code, out, failed := sash(t, "replay", "--policy", file, "--entry", "user=user", "--json", log)
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != 0 {
		t.Fatal(code, failed, err)
	}
	c := said.Candidates
	if said.Requests != 30 || said.Unlimited != 10 || len(c) != 2 || c[0].Policy != file || c[0].Refused != 2+2+10 || c[1].Policy != file+", promoted" || c[1].Refused != 7+7+10 {
		t.Errorf("%+v", said)
	}
}

// made writes a log as CSV with requests of clients: of each, so many per second for so long, from a time after the start.
func made(t *testing.T, lines func(request func(second float64, client, method, path string))) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("time,remote_address,method,path,status\n")
	lines(func(second float64, client, method, path string) {
		fmt.Fprintf(&text, "%.3f,%s,%s,%s,200\n", 1_772_452_800+second, client, method, path)
	})
	file := filepath.Join(t.TempDir(), "log.csv")
	put(t, file, text.String())
	return file
}

type suggested struct {
	Limits     []string
	Affected   int `json:"clients_affected"`
	Warnings   []string
	Note       string `json:"window_note"`
	Candidates []struct {
		Refused int
		Share   float64 `json:"refused_share"`
		Worst   []struct {
			Name     string
			Requests int
		} `json:"worst_clients"`
	}
}

func suggest(t *testing.T, args ...string) (s suggested) {
	t.Helper()
	code, out, err := sash(t, append([]string{"suggest", "--json"}, args...)...)
	if code != 0 || json.Unmarshal([]byte(out), &s) != nil {
		t.Fatalf("%v: exit %d, %s%s", args, code, out, err)
	}
	return s
}

// A client of two hundred makes a third of all requests.
func TestAProposalThatRefusesTheBestCustomerWarns(t *testing.T) {
	log := made(t, func(request func(float64, string, string, string)) {
		for c := range 199 {
			for i := range 20 {
				request(float64(c+i*3600), fmt.Sprintf("192.0.2.%d", c), "GET", "/")
			}
		}
		for i := range 2000 {
			request(float64(i*36), "198.51.100.7", "GET", "/")
		}
	})
	s := suggest(t, "--affect", "1%", log)
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "--affect-requests 1% gives") || s.Candidates[0].Share < 0.25 {
		t.Errorf("%+v", s)
	}
	if w := s.Candidates[0].Worst; len(w) != 1 || w[0].Name != "198.51.100.7" || w[0].Requests != 2000 {
		t.Errorf("%+v", w)
	}
	capped := suggest(t, "--affect", "1%", "--affect-requests", "1%", log)
	if len(capped.Warnings) != 0 || capped.Candidates[0].Share > 0.01 || !strings.HasSuffix(s.Warnings[0], " gives "+strings.Join(capped.Limits, ",")+".") {
		t.Errorf("%+v, and the warning was %v", capped, s.Warnings)
	}
	code, out, _ := sash(t, "suggest", "--affect", "1%", "--hide-clients", log)
	if code != 0 || strings.Contains(out, "198.51.100.7") || !strings.Contains(out, "WARNING: ") || !strings.Contains(out, "2000 requests, 33.44% of all") {
		t.Errorf("exit %d, %s", code, out)
	}
}

// Seventy seconds say nothing of an hour.
func TestNoProposalForAWindowThatTheLogDoesNotKnow(t *testing.T) {
	short := func(seconds int) string {
		return made(t, func(request func(float64, string, string, string)) {
			for i := range 5 * seconds {
				request(float64(i)/5, fmt.Sprintf("192.0.2.%d", i%50), "GET", "/")
			}
		})
	}
	log := short(71)
	s := suggest(t, log)
	if strings.Join(s.Limits, ",") != "1/2s,1/5s" || !strings.Contains(s.Note, "The log covers a window of 1h 1 time, and 10 times are needed. So the long window is 5s. The short one is 2s.") {
		t.Errorf("%+v", s)
	}
	for _, tt := range []struct {
		say  string
		args []string
	}{
		{"Use --sustained 5s, the longest that it knows", []string{"--sustained", "1h", log}},
		{"--burst 10s must be shorter than the long window, and the log knows none longer than 5s", []string{"--burst", "10s", log}},
		{"It is too short for a proposal: use a longer log", []string{short(9)}},
		{"such as 1%", []string{"--affect-requests", "some", log}},
		{"write --affect 0% to refuse nobody", []string{"--affect-requests", "0%", log}},
	} {
		code, out, err := sash(t, append([]string{"suggest"}, tt.args...)...)
		if code != 2 || out != "" || !strings.Contains(err, tt.say) {
			t.Errorf("%v: exit %d, %s%s; want %q", tt.args, code, out, err, tt.say)
		}
	}
}

// The rule that ends the answer is a configuration of the service in shadow mode, and replaying it has the outcome that was
// proposed.
func TestTheProposedRuleIsReplayedToTheSameOutcome(t *testing.T) {
	for entry, args := range map[string][]string{
		"remote_address=client":             {"--where", `path startsWith "/presentations/"`},
		"client=prefix(remote_address, 30)": {"--cost", `method == "GET" ? 1 : 2`},
		"user_agent=user_agent":             nil,
	} {
		_, key, _ := strings.Cut(entry, "=")
		code, out, err := sash(t, append([]string{"suggest", "--affect", "4%", "--burst", "1s", "--sustained", "10s", "--key", key, sampleLog}, args...)...)
		said := regexp.MustCompile(`would have refused (\d+) of (\d+) requests`).FindStringSubmatch(out)
		at := strings.Index(out, "counted.\n\n")
		if code != 0 || said == nil || at < 0 {
			t.Fatalf("%s: exit %d, %s%s", entry, code, out, err)
		}
		policy := tempFile(t, "policy.yaml", out[at+len("counted.\n\n"):])
		var checked, wrong strings.Builder
		if code := cli.Run(t.Context(), []string{"config", "check", policy}, strings.NewReader(""), &checked, &wrong, os.Getenv); code != 0 || !strings.Contains(out, "shadow_mode: true") {
			t.Errorf("%s: exit %d, %s%s for\n%s", entry, code, checked.String(), wrong.String(), out[at:])
		}
		code, out, err = sash(t, append([]string{"replay", "--json", "--policy", policy, "--entry", entry, sampleLog}, args...)...)
		if want := fmt.Sprintf(`"requests":%s,"refused":%s,`, said[2], said[1]); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, no %s in %s%s", entry, code, want, out, err)
		}
	}
}
