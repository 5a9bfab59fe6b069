package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/service/internal/cli"
)

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
	Limits   []string
	Affected int `json:"clients_affected"`
	Warnings []string
	Note     string `json:"window_note"`
	HoldOut  *struct {
		Percent     int
		Limits      []string
		First, Rest struct {
			Clients, Requests int
			Share             float64 `json:"clients_limited_share"`
		}
	} `json:"hold_out"`
	NoHoldOut  string `json:"no_hold_out"`
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
	code, out, err := sash(t, nil, append([]string{"suggest", "--json"}, args...)...)
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
	code, out, _ := sash(t, nil, "suggest", "--affect", "1%", "--hide-clients", log)
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
		code, out, err := sash(t, nil, append([]string{"suggest"}, tt.args...)...)
		if code != 2 || out != "" || !strings.Contains(err, tt.say) {
			t.Errorf("%v: exit %d, %s%s; want %q", tt.args, code, out, err, tt.say)
		}
	}
}

// The last day is busier than those before, and the proposal of the first part meets it.
func TestAProposalIsTestedOnTheRest(t *testing.T) {
	log := made(t, func(request func(float64, string, string, string)) {
		for day := range 4 {
			for hour := range 12 {
				for c := range 100 {
					for i := range 2 + day/3*3 {
						request(float64((day*24+hour)*3600+c*30+i), fmt.Sprintf("192.0.2.%d", c), "GET", "/")
					}
				}
			}
		}
	})
	s := suggest(t, log)
	h := s.HoldOut
	if h == nil || h.Percent != 70 || strings.Join(h.Limits, ",") != "2/10s,2/1h" || h.First.Share != 0 || h.Rest.Share != 1 {
		t.Fatalf("%+v", s)
	}
	if code, out, _ := sash(t, nil, "suggest", "--json", "--sustained", "2h", log); code != 0 || strings.Contains(out, ":null") {
		t.Errorf("exit %d, %s", code, out)
	}
	code, out, _ := sash(t, nil, "suggest", log)
	if code != 0 || !strings.Contains(out, "  on the rest  100.00% of the clients  (100 of 100)") || !strings.Contains(out, "On the rest that is more than was asked for") {
		t.Errorf("exit %d, %s", code, out)
	}
}

// The file that the command writes is a configuration of the service in shadow mode, and replaying it has the outcome that
// was proposed.
func TestTheProposedPolicyIsReplayedToTheSameOutcome(t *testing.T) {
	for name, args := range map[string][]string{
		"by address": {"--affect", "1%"},
		"by network": {"--affect", "4%", "--key", "prefix(remote_address, 30)", "--cost", `method == "GET" ? 1 : 2`},
		"a route":    {"--affect", "1%", "--where", `path startsWith "/presentations/"`},
	} {
		policy := filepath.Join(t.TempDir(), "it's a policy.yaml")
		code, out, err := sash(t, nil, append(append([]string{"suggest", "--json", "--burst", "1s", "--sustained", "10s", "--write-policy", policy}, args...), sampleLog)...)
		type outcome struct{ Refused, Requests int }
		var said struct {
			Candidates []outcome
			Written    struct{ Policy, Replay string }
		}
		if json.Unmarshal([]byte(out), &said) != nil || code != 0 || said.Written.Policy != policy {
			t.Fatalf("%s: exit %d, %s%s", name, code, out, err)
		}
		text, failed := os.ReadFile(policy)
		var checked, wrong strings.Builder
		if code := cli.Run(t.Context(), []string{"config", "check", policy}, strings.NewReader(""), &checked, &wrong, os.Getenv); failed != nil || code != 0 || !strings.Contains(string(text), "shadow_mode: true") {
			t.Errorf("%s: exit %d, %s%s for\n%s", name, code, checked.String(), wrong.String(), text)
		}
		// The command that the output names, in a shell.
		script := strings.Replace(said.Written.Replay, "sash-logs replay", shellQuote(filepath.Join(binary, "sash-logs"))+" replay --json", 1)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(script, "FILE", shellQuote(sampleLog), 1))
		replayed, failed := cmd.CombinedOutput()
		var again struct{ Candidates []outcome }
		if err := json.Unmarshal(replayed, &again); err != nil || failed != nil {
			t.Fatalf("%s: %s: %v, %s", name, script, failed, replayed)
		}
		if len(again.Candidates) != 1 || again.Candidates[0] != said.Candidates[0] {
			t.Errorf("%s: proposed %+v, replayed %+v", name, said.Candidates, again.Candidates)
		}
		if code, _, err := sash(t, nil, "suggest", "--write-policy", policy, sampleLog); code != 2 || !strings.Contains(err, "the file exists") {
			t.Errorf("%s: written again: exit %d, %s", name, code, err)
		}
	}
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
