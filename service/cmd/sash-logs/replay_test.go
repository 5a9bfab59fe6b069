package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
	// That of a policy has the curve and the heat map.
	text := string(readFile(t, page))
	if n := strings.Count(text, `<div class="plot"`); n != 2 || !strings.Contains(text, `id="demand"`) {
		t.Errorf("%d charts, want 2", n)
	}
}

// A log may come through a pipe, and broken lines are shown.
func TestReplayReadsStandardInputAndBrokenLines(t *testing.T) {
	text := readFile(t, sampleLog)
	files := regexp.MustCompile(`"files":\[[^]]*\]`) // all but the names of files is the same
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
	code, got, _ = sash(t, "replay", "--try", "10/1m", "--hide-clients", broken)
	if code != 0 || strings.Contains(got, "192.0.2.99") {
		t.Errorf("broken lines with hidden clients: exit %d, %s", code, got)
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
