package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
		"remote_address=remote_address":     {"--where", `path startsWith "/presentations/"`},
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
